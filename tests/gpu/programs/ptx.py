"""Launches a kernel a hundred times through the driver alone, as Triton does."""

import ctypes

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
"""

cuda = ctypes.CDLL("libcuda.so.1")


def check(code: int) -> None:
    if code:
        raise SystemExit(f"the driver said {code}")


device = ctypes.c_int()
context = ctypes.c_void_p()
module = ctypes.c_void_p()
function = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"))
for _ in range(100):
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None))
check(cuda.cuCtxSynchronize())
