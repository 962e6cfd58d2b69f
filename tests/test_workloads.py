"""The reference workloads' own command line, and that each fault does what it says."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ai_prof.runs.workloads import find

WORKLOADS = find(Path(__file__).parents[1] / "workloads")
OPENCL = [w for w in WORKLOADS if w.device == "opencl"]
CUDA = [w for w in WORKLOADS if w.device == "cuda"]
STUBS = Path(__file__).parent / "framework_stubs.py"


def module(path):
    """A module of the workloads' own, which are no package."""
    spec = importlib.util.spec_from_file_location(
        Path(path).stem, Path(__file__).parents[1] / "workloads" / path
    )
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


png = module("torch_vision_loader/png.py")
pocl_cpu = module("pocl_cpu.py")


def start(workload, *arguments):
    return subprocess.run(
        [sys.executable, *workload.command[1:], *arguments],
        cwd=workload.folder,
        env={**os.environ, **workload.env},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def counts(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def by_name(workload):
    return workload.name


def test_all_are_there():
    assert {w.name for w in OPENCL} == {"cl_train", "cl_tiny", "cl_loader", "cl_overlap"}
    assert {w.name for w in CUDA} == {
        *("torch_train", "torch_train_compiled", "torch_vision_loader", "torch_decode", "torch_decode_graph"),
        *("copy_overlap", "ddp_train", "jax_train", "cupy_kernels", "triton_kernels", "cuda_native"),
        *("cuda_chain", "cuda_graph"),
    }
    assert {"sync", "tiny", "stall", "slow", "serial"} <= {fault for w in WORKLOADS for fault in w.faults}


@pytest.mark.parametrize("workload", WORKLOADS, ids=by_name)
def test_they_know_nothing_of_the_profiler(workload):
    assert "ai_prof" not in (workload.folder / "main.py").read_text()


def without_cuda(workload, *arguments, **variables):
    """Run a CUDA workload with stand-ins for its frameworks that see no device."""
    return subprocess.run(
        [sys.executable, STUBS, *workload.command[1:], *arguments],
        cwd=workload.folder,
        env={**os.environ, **workload.env, "CUDA_VISIBLE_DEVICES": "", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("workload", WORKLOADS, ids=by_name)
def test_a_fault_that_it_does_not_know_is_one_line_and_2(workload):
    if workload.device == "opencl":
        pytest.importorskip("pyopencl")
    unknown = "--regress=none"
    done = start(workload, unknown) if workload.device == "opencl" else without_cuda(workload, unknown)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert ", ".join(sorted(workload.faults)) in done.stderr


@pytest.mark.parametrize("wrong", ["--regress=slow=-1", "--regress=slow=x", "--iterations=0"])
def test_a_wrong_argument_is_one_line_and_2(wrong):
    """All workloads have one parser; that each goes through it, the test before this shows."""
    (workload,) = (w for w in CUDA if w.name == "copy_overlap")
    done = without_cuda(workload, wrong)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("workload", CUDA, ids=by_name)
def test_without_a_device_it_ends_with_one_line(workload, tmp_path):
    done = without_cuda(workload, PATH=str(tmp_path))  # no nvcc either
    assert done.returncode not in {0, 2}
    (line,) = done.stderr.splitlines()
    assert re.search("CUDA (device|driver)|nvcc", line)


def test_a_loader_has_workers_or_says_what_is_wrong():
    (workload,) = (w for w in CUDA if w.name == "torch_vision_loader")
    done = without_cuda(workload, "--workers=-1")
    assert done.returncode == 2
    assert "--workers" in done.stderr


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_images_are_read_as_the_standard_says(pixels):
    file = png.encode(pixels)
    assert (png.decode(file) == pixels).all()
    # The filter "up" of the PNG specification, 9.2, undone byte by byte.
    raw, width = zlib.decompress(file[file.index(b"IDAT") + 4 : -16]), 3 * pixels.shape[1]
    rows = [bytes(width)]
    for at in range(0, len(raw), width + 1):
        assert raw[at] == 2
        rows.append(bytes((x + up) % 256 for x, up in zip(raw[at + 1 :], rows[-1], strict=False)))
    assert b"".join(rows[1:]) == pixels.tobytes()


def test_a_damaged_image_is_refused():
    file = bytearray(png.encode(np.zeros((4, 4, 3), np.uint8)))
    file[40] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        png.decode(bytes(file))
    with pytest.raises(ValueError, match="not a PNG"):
        png.decode(b"GIF89a")


def nvcc():
    """The folder of a CUDA compiler: the toolkit's, or that of its wheel."""
    places = [shutil.which("nvcc"), *Path(np.__file__).parents[1].glob("nvidia/cu*/bin/nvcc")]
    return next((Path(place).parent for place in places if place), None)


def test_the_native_one_builds_itself_once_and_ends_without_a_device(tmp_path):
    folder = nvcc()
    if folder is None:
        pytest.skip("no nvcc, neither the CUDA toolkit's nor the wheel's")
    (workload,) = (w for w in CUDA if w.name == "cuda_native")
    variables = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "LIBRARY_PATH": str(folder.parent / "lib"),  # where the wheel, unlike the toolkit, has its runtime
        "XDG_CACHE_HOME": str(tmp_path),
    }
    done = without_cuda(workload, **variables)
    assert done.returncode == 1
    assert done.stderr == "no CUDA device: this workload needs an NVIDIA GPU\n"
    (program,) = (tmp_path / "reference-workloads").iterdir()
    built = program.stat().st_mtime_ns
    assert without_cuda(workload, **variables).returncode == 1
    assert program.stat().st_mtime_ns == built


@pytest.mark.parametrize("workload", OPENCL, ids=by_name)
def test_every_declared_fault_runs(workload):
    pytest.importorskip("pyopencl")
    plain = counts(start(workload, "--iterations", "2"))
    assert plain["iterations"] == 2
    assert plain["launches"] > 0
    for fault in workload.faults:
        launches = counts(start(workload, "--iterations", "2", "--regress", fault))["launches"]
        assert launches > plain["launches"] if fault == "tiny" else launches == plain["launches"]


@pytest.mark.parametrize("workload", OPENCL, ids=by_name)
def test_the_same_seed_computes_the_same(workload):
    pytest.importorskip("pyopencl")
    first, second = (start(workload, "--iterations", "3").stdout for _ in range(2))
    assert untimed(first) == untimed(second)


def untimed(stdout):
    """What a workload printed, without the one figure that no seed fixes."""
    return re.sub(r'"iteration_us": \d+', "", stdout)


def test_a_cpus_name_is_looked_for_in_pocls_record_alone():
    """What lies behind the record in memory may point to the same word, and is no part of it."""
    names = [ctypes.create_string_buffer(b"generic", 8) for _ in range(2)]
    words = (ctypes.c_uint64 * 256)()
    words[80], words[130] = map(ctypes.addressof, names)
    device = SimpleNamespace(
        platform=SimpleNamespace(name=pocl_cpu.POCL),
        version="pthread-generic",
        int_ptr=ctypes.addressof(words),
    )
    pocl_cpu.teach(device)
    assert names[0].value in {b"haswell", b"x86-64"}
    assert names[1].value == b"generic"
    pocl_cpu.teach(device)  # as the next context of a program does
    words[80] = 0
    with pytest.raises(RuntimeError, match="install a newer PoCL"):
        pocl_cpu.teach(device)


# Takes the makers of CPUs out of LLVM's code in the driver, before it looks which CPU it runs on.
UNKNOWN_CPU = """
import ctypes, re, runpy
from pathlib import Path
import pyopencl as cl
(driver,) = (Path(cl.__file__).parent / ".libs").resolve().glob("libpocl*.so")
ctypes.CDLL(str(driver))
for line in Path("/proc/self/maps").read_text().splitlines():
    if "r-xp" in line and line.endswith(str(driver)):
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 7) == 0
        for maker in re.finditer(rb"Auth|Genu", ctypes.string_at(begin, end - begin)):
            ctypes.memmove(begin + maker.start(), b"none", 4)
assert cl.create_some_context(interactive=False).devices[0].version.endswith("-generic")
runpy.run_path("main.py", run_name="__main__")
"""


def test_for_a_cpu_that_pocl_does_not_know_it_compiles(tmp_path):
    cl = pytest.importorskip("pyopencl")
    if not list((Path(cl.__file__).parent / ".libs").glob("libpocl*.so")):
        pytest.skip("this PoCL is not the one that pip installs")
    (workload,) = (w for w in OPENCL if w.name == "cl_train")
    done = subprocess.run(
        [sys.executable, "-c", UNKNOWN_CPU, "--iterations", "2"],
        cwd=workload.folder,
        env={**os.environ, **workload.env, "POCL_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert counts(done)["iterations"] == 2
