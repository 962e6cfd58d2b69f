"""What the CUDA reference workloads without a framework share: the driver's own interface, through ctypes."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Every kernel computes one value a thread, `rounds` times over; they differ in name alone.
HEAD = """
.version 7.0
.target sm_70
.address_size 64
"""
KERNEL = """
.visible .entry NAME(.param .u64 x, .param .u32 rounds)
{
    .reg .u32 %i<4>;
    .reg .u64 %a<2>;
    .reg .f32 %v;
    .reg .pred %more;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i0, %i0, %i1, %i2;
    ld.param.u64 %a0, [x];
    cvta.to.global.u64 %a0, %a0;
    mul.wide.u32 %a1, %i0, 4;
    add.u64 %a0, %a0, %a1;
    ld.global.f32 %v, [%a0];
    ld.param.u32 %i3, [rounds];
again:
    fma.rn.f32 %v, %v, 0f3F7FF000, 0f3A800000;
    sub.u32 %i3, %i3, 1;
    setp.ne.u32 %more, %i3, 0;
    @%more bra again;
    st.global.f32 [%a0], %v;
    ret;
}
"""
THREADS = 256
CAPTURE_THREAD_LOCAL = 1


class Program:
    """Kernels `names` on the first GPU, in a stream of its primary context; counts their launches."""

    def __init__(self, names: Sequence[str]) -> None:
        try:
            self.driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            sys.exit("no CUDA driver: this workload needs an NVIDIA GPU")
        if self.driver.cuInit(0):
            sys.exit("no CUDA device: this workload needs an NVIDIA GPU")
        self.launches = 0
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        context = self.made("cuDevicePrimaryCtxRetain", device)
        self.call("cuCtxSetCurrent", context)
        source = HEAD + "".join(KERNEL.replace("NAME", name) for name in names)
        module = self.made("cuModuleLoadData", source.encode())
        self.functions = {name: self.made("cuModuleGetFunction", module, name.encode()) for name in names}
        self.stream = self.made("cuStreamCreate", 1)

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver; a failure ends the process with its number."""
        code = getattr(self.driver, name)(*arguments)
        if code:
            sys.exit(f"{name}: the CUDA driver said {code}")

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Call the driver for a handle, which it writes to its first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def device_memory(self, size: int) -> ctypes.c_uint64:
        """Memory of the GPU, set to 0."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return address

    def host_memory(self, size: int) -> ctypes.c_void_p:
        """Pinned memory of the host."""
        return self.made("cuMemHostAlloc", ctypes.c_size_t(size), 0)

    def upload(self, target: ctypes.c_uint64, source: ctypes.c_void_p, size: int) -> None:
        """Start a copy to the device."""
        self.call("cuMemcpyHtoDAsync_v2", target, source, ctypes.c_size_t(size), self.stream)

    def download(self, target: ctypes.c_void_p, source: ctypes.c_uint64, size: int) -> None:
        """Start a copy from the device."""
        self.call("cuMemcpyDtoHAsync_v2", target, source, ctypes.c_size_t(size), self.stream)

    def wait(self) -> None:
        """Wait for all that was started."""
        self.call("cuStreamSynchronize", self.stream)

    def work(self, name: str, x: ctypes.c_uint64, rounds: int, blocks: int) -> Work:
        """A kernel with its arguments, ready to be launched."""
        return Work(self, name, x, rounds, blocks)

    def graph(self, works: Sequence[Work]) -> ctypes.c_void_p:
        """The kernels as one graph, ready for `replay`."""
        self.call("cuStreamBeginCapture_v2", self.stream, CAPTURE_THREAD_LOCAL)
        for work in works:
            work.launch()
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.launches -= len(works)
        return self.made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))

    def replay(self, graph: ctypes.c_void_p) -> None:
        """Launch a graph."""
        self.call("cuGraphLaunch", graph, self.stream)


class Work:
    """One kernel with its arguments."""

    def __init__(self, program: Program, name: str, x: ctypes.c_uint64, rounds: int, blocks: int) -> None:
        self.program = program
        self.values = (ctypes.c_uint64(x.value), ctypes.c_uint32(rounds))
        self.parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in self.values))
        grid = (ctypes.c_uint(blocks), ctypes.c_uint(1), ctypes.c_uint(1))
        block = (ctypes.c_uint(THREADS), ctypes.c_uint(1), ctypes.c_uint(1))
        shared = ctypes.c_uint(0)
        self.call = program.driver.cuLaunchKernel
        self.arguments = (
            program.functions[name], *grid, *block, shared, program.stream, self.parameters, None,
        )  # fmt: skip

    def launch(self) -> None:
        """Start the kernel in the program's stream."""
        code = self.call(*self.arguments)
        if code:
            sys.exit(f"cuLaunchKernel: the CUDA driver said {code}")
        self.program.launches += 1
