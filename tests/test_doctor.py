"""What `ai-prof doctor` sees and says, on machines that can capture and machines that can't."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ai_prof.cli import main
from ai_prof.collect import doctor_facts
from ai_prof.collect.autostart import library_path
from ai_prof.collect.doctor import Check, cupti_cuda, examine, exit_code
from ai_prof.collect.doctor_facts import Cuda, Cupti, Facts, OpenCl, Seen, admin_only, capabilities, probe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GIB = 1 << 30
CUDA = Cuda(init=0, version=13000, devices=("NVIDIA H200",))
CUPTI = Cupti(path="/x/libcupti.so.13", version=130001, selects_calls=True, refusal=None)
POCL = OpenCl(loader="/x/libOpenCL.so.1", layers=True, devices=("pthread-CPU",))
GOOD = Facts(
    library="/x/libai_prof.so",
    python="/usr/bin/python3",
    seen=Seen(cuda=CUDA, cupti=CUPTI, opencl=POCL),
    driver="580.159",
    free_gpu_memory=100 * GIB,
    free_memory=100 * GIB,
    buffer=256 << 20,
    foreign_injection=None,
    foreign_nvtx=None,
    profilers=(),
    captures=(),
    admin_only=False,
    ptrace_scope=0,
    may_ptrace=False,
)


def with_facts(**changes: Any) -> Facts:
    return msgspec.structs.replace(GOOD, **changes)


def with_seen(**changes: Any) -> Facts:
    return with_facts(seen=msgspec.structs.replace(GOOD.seen, **changes))


def refusing(error: str) -> Cupti:
    return msgspec.structs.replace(CUPTI, refusal=error)


def mute(said: str) -> OpenCl:
    """A device whose compiler takes no kernel."""
    return msgspec.structs.replace(POCL, faults={"pthread-CPU": said})


def find(facts: Facts, name: str) -> Check:
    return next(check for check in examine(facts) if check.name == name)


def test_a_good_machine_has_nothing_to_mend() -> None:
    checks = examine(GOOD)
    assert {check.status for check in checks} == {"ok"}
    assert not any(check.remedy for check in checks)
    assert exit_code(checks) == 0


def test_a_laptop_can_capture_opencl() -> None:
    facts = with_facts(seen=Seen(opencl=POCL), driver=None, free_gpu_memory=None, admin_only=None)
    assert exit_code(examine(facts)) == 0
    assert find(facts, "CUDA driver").status == "absent"
    assert find(facts, "GPU memory").status == "absent"


@pytest.mark.parametrize(
    "seen",
    [
        Seen(),
        Seen(opencl=OpenCl(loader="/x/libOpenCL.so.1", layers=False, devices=())),
        Seen(cuda=Cuda(init=0, version=13000, devices=())),
        Seen(cuda=Cuda(init=100, version=13000, devices=())),
    ],
)
def test_without_a_device_it_is_3(seen: Seen) -> None:
    checks = examine(with_facts(seen=seen, driver=None))
    assert exit_code(checks) == 3
    assert all(check.text for check in checks)


@pytest.mark.parametrize(
    ("facts", "name", "remedy"),
    [
        (with_facts(library=None), "capture library", "pip install"),
        (with_facts(seen=None), "devices", "--python"),
        (with_seen(cuda=Cuda(init=999, version=13000, devices=())), "CUDA driver", "nvidia-smi"),
        (with_seen(cupti=None), "libcupti", "pip install nvidia-cuda-cupti beside"),
        (with_seen(cuda=Cuda(0, 12040, ("T4",)), cupti=None), "libcupti", "nvidia-cuda-cupti-cu12"),
        (with_seen(cuda=Cuda(0, 12040, ("T4",))), "libcupti", "a driver of CUDA 13.0"),
        (with_seen(cuda=Cuda(0, 12040, ("T4",), (13,))), "CUDA runtime", "update the driver"),
        (
            with_seen(
                cupti=msgspec.structs.replace(
                    CUPTI, refusal="CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES"
                )
            ),
            "libcupti",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (
            with_seen(cupti=refusing("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")),
            "libcupti",
            "end the profiler",
        ),
        (with_facts(foreign_injection="/nsys.so"), "other tools", "unset CUDA_INJECTION64_PATH"),
        (with_facts(free_memory=100 << 20), "memory", "AI_PROF_BUFFER_MB"),
        (
            with_facts(seen=Seen(opencl=msgspec.structs.replace(POCL, layers=False))),
            "OpenCL",
            "loader with layers",
        ),
    ],
)
def test_what_blocks_a_capture_is_4_with_a_remedy(facts: Facts, name: str, remedy: str) -> None:
    check = find(facts, name)
    assert check.status == "blocked"
    assert check.remedy
    assert remedy in check.remedy
    assert exit_code(examine(facts)) == 4


@pytest.mark.parametrize(
    ("facts", "name", "text"),
    [
        (with_seen(cupti=msgspec.structs.replace(CUPTI, selects_calls=False)), "libcupti", "level kernel"),
        (with_seen(opencl=msgspec.structs.replace(POCL, layers=False)), "OpenCL", "no layers"),
        (with_seen(opencl=mute("error: unknown target CPU 'generic'")), "OpenCL compiler", "pocl_cpu.py"),
        (with_seen(opencl=mute("the compiler crashed or hung")), "OpenCL compiler", "another driver"),
        (with_facts(admin_only=True), "permissions", "NVreg_RestrictProfilingToAdminUsers=0"),
        (with_facts(profilers=("nsys (pid 7)",)), "other tools", "nsys (pid 7)"),
        (with_facts(captures=(7, 8)), "other tools", "7, 8"),
        (with_facts(foreign_nvtx="/nsys.so"), "other tools", "/nsys.so"),
        (with_facts(free_gpu_memory=100 << 20), "GPU memory", "100 MiB free"),
        (with_facts(ptrace_scope=1), "attaching", "sudo sysctl kernel.yama.ptrace_scope=0"),
        (with_facts(ptrace_scope=3), "attaching", "AI_PROF_ENABLE=standby"),
    ],
)
def test_what_to_mind_blocks_nothing(facts: Facts, name: str, text: str) -> None:
    check = find(facts, name)
    assert check.status == "note"
    assert text in f"{check.text} {check.remedy}"
    assert exit_code(examine(facts)) == 0


def test_who_may_trace_anyway_needs_no_remedy() -> None:
    assert find(with_facts(ptrace_scope=2, may_ptrace=True), "attaching").status == "ok"


@pytest.mark.parametrize(
    ("version", "cuda"),
    [(22, "12.4"), (26, "12.8"), (27, "12.8"), (130001, "13.0"), (130500, "13.5")],
)
def test_cupti_versions_are_those_of_cuda(version: int, cuda: str) -> None:
    assert cupti_cuda(version) == cuda


def test_the_kernels_files_are_understood() -> None:
    assert admin_only("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n") is True
    assert admin_only("RmProfilingAdminOnly: 0\n") is False
    assert admin_only("") is None
    assert capabilities("Name:\tx\nCapEff:\t0000000000080000\n") >> 19 & 1


DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetName(char *name, int size, int device) { name[0] = 'G'; name[1] = 0; return 0; }
"""
PROFILER = """
#include <stdint.h>
int cuptiGetVersion(uint32_t *version) { *version = 130001; return 0; }
int cuptiSubscribe(void **subscriber, void *callback, void *data) { return REFUSED; }
int cuptiUnsubscribe(void *subscriber) { return 0; }
int cuptiActivityEnable(int kind) { return kind == 10 ? 0 : 1; }
int cuptiActivityDisable(int kind) { return 0; }
int cuptiActivityEnableRuntimeApi(int id, unsigned char on) { return 0; }
int cuptiGetResultString(int result, const char **text) { *text = "CUPTI_ERROR_REFUSED"; return 0; }
"""


def build(folder: Path, name: str, source: str, *flags: str) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = folder / name
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *flags],
        input=source, text=True, check=True,
    )  # fmt: skip
    return str(path)


@pytest.mark.parametrize(("refused", "refusal"), [(0, None), (39, "CUPTI_ERROR_REFUSED")])
def test_the_probe_asks_the_driver_and_cupti(tmp_path: Path, refused: int, refusal: str | None) -> None:
    build(tmp_path, "libcuda.so.1", DRIVER)
    cupti = build(tmp_path, "libcupti.so.13", PROFILER, f"-DREFUSED={refused}")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "AI_PROF_CUPTI": cupti}
    seen = probe(sys.executable, environ, None)
    assert seen is not None
    assert seen.cuda is not None
    assert (seen.cuda.init, seen.cuda.version, seen.cuda.devices) == (0, 13000, ("G",))
    assert seen.cupti == Cupti(path=cupti, version=130001, selects_calls=True, refusal=refusal)


LOADER = """
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static int device;
int clGetPlatformIDs(uint32_t n, void **found, uint32_t *count) {
  if (found) found[0] = &device;
  return count ? (*count = 1, 0) : 0;
}
int clGetDeviceIDs(void *platform, uint64_t type, uint32_t n, void **found, uint32_t *count) {
  if (found) found[0] = &device;
  return count ? (*count = 1, 0) : 0;
}
int clGetDeviceInfo(void *of, int what, size_t size, char *name, size_t *length) {
  return of == &device ? (strcpy(name, "G"), 0) : -33;
}
void *clCreateContext(void *p, uint32_t n, void **of, void *notify, void *data, int *error) {
  return *error = of[0] == &device ? 0 : -33, &device;
}
void *clCreateProgramWithSource(void *context, uint32_t n, const char **text, size_t *sizes, int *error) {
  return *error = strstr(text[0], "kernel void") ? 0 : -30, &device;
}
int clBuildProgram(void *program, uint32_t n, void *of, void *options, void *notify, void *data) { BUILD; }
int clGetProgramBuildInfo(void *program, void *of, int what, size_t size, char *log, size_t *length) {
  const char said[] = "\\nerror: what\\nmore";
  if (length) *length = sizeof said;
  return log ? (memcpy(log, said, size), 0) : 0;
}
"""
PYOPENCL = """
import ctypes, types
ctypes.CDLL("libOpenCL.so.1")
def get_platforms():
    device = types.SimpleNamespace(name="G")
    return [types.SimpleNamespace(get_devices=lambda: [device])]
"""


@pytest.mark.parametrize(
    ("build_program", "faults"),
    [
        ("return 0", {}),
        ("return -11", {"G": "error: what"}),
        ("abort()", {"G": "the compiler crashed or hung"}),
    ],
)
def test_the_probe_has_every_opencl_device_compile_a_kernel(
    tmp_path: Path, build_program: str, faults: dict[str, str]
) -> None:
    build(tmp_path, "libOpenCL.so.1", LOADER, f"-DBUILD={build_program}")
    (tmp_path / "pyopencl.py").write_text(PYOPENCL)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    seen = probe(sys.executable, environ, None)
    assert seen is not None
    assert seen.opencl is not None
    assert seen.opencl.devices == ("G",)
    assert seen.opencl.faults == faults


def test_that_no_opencl_kernel_compiles_is_in_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen(opencl=mute("error: unknown target CPU 'generic'"))
    monkeypatch.setattr("ai_prof.cli.doctor.gather", fixed(with_facts(seen=seen, driver=None)))
    assert main(["doctor"]) == 0  # the reference workloads know the way out
    said = capsys.readouterr().out
    assert said.endswith("A capture of OpenCL programs can work here, once their kernels compile.\n")


def test_a_library_that_is_no_cupti_is_none(tmp_path: Path) -> None:
    build(tmp_path, "libcuda.so.1", DRIVER)
    environ = {
        **os.environ, "LD_LIBRARY_PATH": str(tmp_path), "AI_PROF_CUPTI": str(tmp_path / "libcuda.so.1")
    }  # fmt: skip
    seen = probe(sys.executable, environ, None)
    assert seen is not None
    assert seen.cupti is None


def test_an_interpreter_that_fails_is_seen() -> None:
    assert probe("/bin/false", os.environ, None) is None


@pytest.mark.skipif(library_path() is None, reason="this installation has no native library")
def test_the_loader_of_pyopencl_takes_our_layer() -> None:
    pytest.importorskip("pyopencl")
    seen = probe(sys.executable, os.environ, library_path())
    assert seen is not None
    assert seen.opencl is not None
    assert seen.opencl.layers
    assert seen.opencl.devices


def test_a_process_with_the_library_is_a_capture() -> None:
    library = library_path()
    if library is None:
        pytest.skip("this installation has no native library")
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); input()"
    command = [sys.executable, "-c", code, library]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert other.pid in doctor_facts.processes(library)[1]
        other.communicate(b"\n")


def fixed(facts: Facts) -> Any:
    def gather(python: str, environ: Mapping[str, str], buffer: int) -> Facts:
        assert python
        assert environ
        return msgspec.structs.replace(facts, buffer=buffer)

    return gather


def test_the_command_prints_and_ends_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ai_prof.cli.doctor.gather", fixed(with_facts(free_memory=0)))
    monkeypatch.setenv("AI_PROF_BUFFER_MB", "512")
    assert main(["doctor"]) == 4
    out = capsys.readouterr().out
    assert "blocked memory: 0 MiB free, a capture takes at most 528 MiB a process" in out
    assert main(["doctor", "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "ai-prof/doctor/1"
    assert answer["exit_code"] == 4
    assert answer["facts"]["driver"] == "580.159"


def test_on_this_machine_it_says_something_true(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == answer["exit_code"]
    assert answer["facts"]["library"] == library_path()
    assert {check["status"] for check in answer["checks"]} <= {"ok", "note", "absent", "blocked"}


def test_wrong_arguments_are_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["doctor", "--python", "/no/such/python"]) == 2
    for text in ("many", "\N{SUPERSCRIPT TWO}"):
        monkeypatch.setenv("AI_PROF_BUFFER_MB", text)
        assert main(["doctor"]) == 2
