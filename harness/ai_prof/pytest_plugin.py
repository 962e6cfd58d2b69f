"""The pytest plugin: the fixture `gpu_profile`, and workloads as tests with `--ai-prof-gate`.

Everything it needs is imported when it is asked for: other projects' pytest never pays for it.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ai_prof.pytest_gate import WorkloadFile
    from ai_prof.runs.gpu_profile import GpuProfile, Profiler

MARKER = (
    "gpu_profile(device='auto', level='api', timeout=300): how the fixture of that name captures: device is "
    "auto, cuda or opencl; a test that asks for cuda is skipped where there is no NVIDIA GPU"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("ai-prof")
    group.addoption(
        "--ai-prof-gate",
        action="store_true",
        help="gate the workloads whose workload.toml is collected, one test each, as `ai-prof gate` does",
    )
    group.addoption(
        "--ai-prof-output",
        type=Path,
        default=None,
        metavar="DIR",
        help="keep the captures of `gpu_profile` in DIR, and not in the tests' temporary folders",
    )
    group.addoption(
        "--ai-prof-plan", type=Path, default=None, metavar="FILE", help="launches to make, written by ai-prof"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker. Raises UsageError where several processes would measure beside each other."""
    config.addinivalue_line("markers", MARKER)
    if config.getoption("ai_prof_gate") and config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--ai-prof-gate makes its launches one by one: use no -n of pytest-xdist")


@pytest.fixture
def gpu_profile(request: pytest.FixtureRequest, tmp_path: Path) -> Profiler:
    """Run a command or a function under capture, in a fresh process: `gpu_profile("python", "step.py")`.

    Returns a `GpuProfile`, whose figures a test asserts on: `assert profile.gap < 0.15`. Of a test that fails
    pytest shows the summary of each profile, as `ai-prof summary` prints it.
    """
    from ai_prof.cli.summary_text import render
    from ai_prof.runs.gpu_profile import Profiler
    from ai_prof.runs.nvml import gpu_count

    def tell(profile: GpuProfile) -> None:
        text = f"{render(profile.summary)}\ncapture in {profile.capture}"
        request.node.add_report_section("call", "GPU profile", text)

    marker = request.node.get_closest_marker("gpu_profile")
    wanted: dict[str, Any] = {"device": "auto", "level": "api", "timeout": 300}
    given = marker.kwargs if marker else {}
    if given.keys() - wanted.keys() or (marker and marker.args):
        raise pytest.UsageError(f"the marker is {MARKER.partition(':')[0]}")
    wanted |= given
    gpus = gpu_count()
    if wanted["device"] == "cuda" and not gpus:
        pytest.skip("no NVIDIA GPU here")
    if wanted["device"] == "auto":
        wanted["device"] = "cuda" if gpus else "opencl"
    folder = tmp_path
    if (output := request.config.getoption("ai_prof_output")) is not None:
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in request.node.nodeid)
        folder = output / name
    return Profiler(folder, wanted["device"], wanted["level"], wanted["timeout"], tell)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> WorkloadFile | None:
    """A workload's declaration, where gating was asked for."""
    if not parent.config.getoption("ai_prof_gate") or file_path.name != "workload.toml":
        return None
    from ai_prof.pytest_gate import WorkloadFile

    return WorkloadFile.from_parent(parent, path=file_path)


@pytest.hookimpl(optionalhook=True)  # unknown where pytest-benchmark is switched off
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Keep the plan's facts of the machine beside pytest-benchmark's own."""
    path = config.getoption("ai_prof_plan")
    if path is not None:
        from ai_prof.runs.measure import load

        machine_info["ai_prof"] = load(path).machine
