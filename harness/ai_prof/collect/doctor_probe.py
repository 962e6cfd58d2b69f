"""What one interpreter's processes would find: driver, libcupti, OpenCL. Printed as JSON.

Run as a script by the interpreter that is examined, so nothing but the standard library. A driver may hang or
crash: it does so in this process alone. Arguments: the native library, or "" where there is none; or `build`,
which has every OpenCL device compile a kernel instead, since a compiler may crash as well.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys

WHEELS = ((13, "nvidia/cu13/lib/libcupti.so.13"), (12, "nvidia/cuda_cupti/lib/libcupti.so.12"))
RUNTIMES = ((13, "nvidia/cu13/lib/libcudart.so.13"), (12, "nvidia/cuda_runtime/lib/libcudart.so.12"))
TOOLKIT = ("", "/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/")
CONCURRENT_KERNEL = 10
BUILD_LOG = 0x1183
KERNEL = b"kernel void one(global int *x) { *x = 1; }"


def opened(path: str) -> ctypes.CDLL | None:
    """The library; None where it can't be loaded."""
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def mapped(part: str) -> str | None:
    """The path of the first file mapped into this process whose name has `part`."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123 - a plain script
        for line in maps:
            path = line[line.find("/") :].strip() if "/" in line else ""
            if part in path.rsplit("/", 1)[-1]:
                return path
    return None


def driver() -> dict[str, object] | None:
    """The CUDA driver as a program finds it; None where libcuda is absent."""
    cuda = opened("libcuda.so.1")
    if cuda is None:
        return None
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    result = cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if result == 0:
        cuda.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for ordinal in range(count.value):
        name = ctypes.create_string_buffer(256)
        cuda.cuDeviceGetName(name, 255, ordinal)
        names.append(name.value.decode(errors="replace"))
    return {"init": result, "version": version.value, "devices": names, "runtimes": runtimes()}


def runtimes() -> list[int]:
    """The majors of the CUDA runtimes that are installed as packages."""
    return [major for major, wheel in RUNTIMES if any(os.path.exists(f"{f}/{wheel}") for f in sys.path)]  # noqa: PTH110


def candidates(driver_version: int) -> list[str]:
    """Where the native library looks for libcupti, in its order."""
    asked = os.environ.get("AI_PROF_CUPTI")
    if asked:
        return [asked]
    order = WHEELS[::-1] if 0 < driver_version < 13000 or runtimes() == [12] else WHEELS
    wheels = [f"{folder}/{wheel}" for _, wheel in order for folder in sys.path]
    return wheels + [f"{folder}libcupti.so.{major}" for major, _ in order for folder in TOOLKIT]


def cupti(driver_version: int, *, try_it: bool) -> dict[str, object] | None:
    """The libcupti that a capture would load, and what it says to recording; None where there is none."""
    libraries = filter(None, map(opened, candidates(driver_version)))
    library = next((each for each in libraries if hasattr(each, "cuptiActivityEnable")), None)
    if library is None:
        return None
    version = ctypes.c_uint32(0)
    library.cuptiGetVersion(ctypes.byref(version))
    found: dict[str, object] = {
        "path": mapped("libcupti"),
        "version": version.value,
        "selects_calls": hasattr(library, "cuptiActivityEnableRuntimeApi"),
        "refusal": None,
    }
    if try_it:
        found["refusal"] = refusal(library)
    return found


def refusal(library: ctypes.CDLL) -> str | None:
    """CUPTI's error when a client subscribes and records kernels; None where it lets it."""
    subscriber = ctypes.c_void_p()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(
        lambda *_: None
    )
    result = library.cuptiSubscribe(ctypes.byref(subscriber), callback, None)
    if result == 0:
        result = library.cuptiActivityEnable(CONCURRENT_KERNEL)
        library.cuptiActivityDisable(CONCURRENT_KERNEL)
        library.cuptiUnsubscribe(subscriber)
    if result == 0:
        return None
    text = ctypes.c_char_p()
    library.cuptiGetResultString(result, ctypes.byref(text))
    return (text.value or b"").decode() or f"CUPTI error {result}"


def opencl(library: str) -> dict[str, object] | None:
    """The OpenCL loader, whether it loads layers, and its devices; None where there is no loader."""
    if library:
        os.environ["OPENCL_LAYERS"] = library
    devices = devices_of_pyopencl() if importlib.util.find_spec("pyopencl") else devices_of_system()
    loader = mapped("libOpenCL")
    if loader is None and devices is None:
        return None
    layers = bool(library) and mapped(os.path.basename(library)) is not None  # noqa: PTH119 - a plain script
    return {"loader": loader, "layers": layers, "devices": devices or []}


def devices_of_pyopencl() -> list[str] | None:
    """The devices that pyopencl, with a loader of its own, finds."""
    try:
        import pyopencl  # noqa: PLC0415 - the interpreter that is examined may not have it

        return [device.name for platform in pyopencl.get_platforms() for device in platform.get_devices()]
    except Exception:  # noqa: BLE001 - no platform, or no loader: the maps tell which
        return None


def devices_of_system() -> list[str] | None:
    """The platforms that the system's loader finds."""
    loader = opened("libOpenCL.so.1")
    if loader is None:
        return None
    return [name for platform in platforms(loader) for name in device_names(loader, platform)]


def platforms(loader: ctypes.CDLL) -> list[int | None]:
    """The platforms that a loader finds."""
    count = ctypes.c_uint32(0)
    if loader.clGetPlatformIDs(0, None, ctypes.byref(count)) != 0:
        return []
    found = (ctypes.c_void_p * count.value)()
    loader.clGetPlatformIDs(count, found, None)
    return list(found)


def device_names(loader: ctypes.CDLL, platform: int | None) -> list[str]:
    """The names of one platform's devices."""
    return [device_name(loader, device) for device in device_ids(loader, platform)]


def device_ids(loader: ctypes.CDLL, platform: int | None) -> list[ctypes.c_void_p]:
    """One platform's devices."""
    every, count = ctypes.c_uint64(0xFFFFFFFF), ctypes.c_uint32(0)
    if loader.clGetDeviceIDs(ctypes.c_void_p(platform), every, 0, None, ctypes.byref(count)) != 0:
        return []
    devices = (ctypes.c_void_p * count.value)()
    loader.clGetDeviceIDs(ctypes.c_void_p(platform), every, count, devices, None)
    return [ctypes.c_void_p(device) for device in devices]


def device_name(loader: ctypes.CDLL, device: ctypes.c_void_p) -> str:
    """A device's name."""
    text, name_of = ctypes.create_string_buffer(256), 0x102B
    loader.clGetDeviceInfo(device, name_of, ctypes.c_size_t(255), text, None)
    return text.value.decode(errors="replace")


def faults() -> dict[str, str]:
    """The OpenCL devices that compile no kernel, by name, and what they say to one."""
    if importlib.util.find_spec("pyopencl"):
        import pyopencl  # noqa: F401, PLC0415 - brings its own loader
    loader = ctypes.CDLL(mapped("libOpenCL") or "libOpenCL.so.1")
    devices = [device for platform in platforms(loader) for device in device_ids(loader, platform)]
    said = {device_name(loader, device): build_error(loader, device) for device in devices}
    return {name: error for name, error in said.items() if error}


def build_error(loader: ctypes.CDLL, device: ctypes.c_void_p) -> str | None:
    """What the device's compiler says to a kernel; None where it takes it."""
    error, source = ctypes.c_int(0), ctypes.c_char_p(KERNEL)
    loader.clCreateContext.restype = loader.clCreateProgramWithSource.restype = ctypes.c_void_p
    context = ctypes.c_void_p(
        loader.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(error))
    )
    if error.value != 0:
        return f"clCreateContext gave {error.value}"
    program = ctypes.c_void_p(
        loader.clCreateProgramWithSource(context, 1, ctypes.byref(source), None, ctypes.byref(error))
    )
    result = loader.clBuildProgram(program, 0, None, None, None, None)
    if result == 0:
        return None
    size = ctypes.c_size_t(0)
    loader.clGetProgramBuildInfo(program, device, BUILD_LOG, ctypes.c_size_t(0), None, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    loader.clGetProgramBuildInfo(program, device, BUILD_LOG, size, log, None)
    lines = log.value.decode(errors="replace").split("\n")
    return next((line for line in lines if line.strip()), f"clBuildProgram gave {result}")


def main() -> None:
    """Print what there is."""
    if sys.argv[1:] == ["build"]:
        print(json.dumps(faults()))
        return
    seen = driver()
    version = int(str(seen["version"])) if seen else 0
    works = seen is not None and seen["init"] == 0 and bool(seen["devices"])
    library = sys.argv[1] if len(sys.argv) > 1 else ""
    found = {"cuda": seen, "cupti": cupti(version, try_it=works), "opencl": opencl(library)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
