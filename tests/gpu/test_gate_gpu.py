"""The environment guard, `--against`, `accept` and `bisect` on a real GPU. Four minutes, alone on it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
for module in ("scipy", "jinja2", "rich", "psutil", "pynvml", "pytest_benchmark"):
    pytest.importorskip(module, reason="the gate needs all of ai-prof's dependencies")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

sys.path.append(str(Path(__file__).parents[1]))

from fake_project import Project  # noqa: E402 - needs the path

from ai_prof.cli import main  # noqa: E402
from ai_prof.gate.model import Reason  # noqa: E402
from ai_prof.runs.environment import disturbances, observe  # noqa: E402
from ai_prof.runs.launch import Job, launch  # noqa: E402
from ai_prof.runs.workloads import load  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOML = """schema = "ai-prof/workload/1"
command = ["python", "main.py"]
device = "cuda"
requires = ["torch"]
timeout_s = 120
structure = ["kernels", "syncs"]
"""
PROGRAM = """
import torch
SIZE = 2048
ITERATIONS = 150
a = torch.randn(SIZE, SIZE, device="cuda")
for _ in range(ITERATIONS):
    for _ in range(20):
        a = torch.tanh(a @ a * 0.001)
    torch.cuda.synchronize()
"""
FOREIGN = (
    "import sys, time, torch; torch.ones(1, device='cuda'); print(flush=True); time.sleep(float(sys.argv[1]))"
)


def job(folder: Path, iterations: int = 150) -> Job:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "main.py").write_text(PROGRAM.replace("ITERATIONS = 150", f"ITERATIONS = {iterations}"))
    (work / "workload.toml").write_text(TOML)
    return Job(
        workload=load(work / "workload.toml"),
        side="candidate",
        python=sys.executable,
        capture=folder / "capture",
        session="s",
        order=0,
    )


def test_a_quiet_gpu_is_seen_as_one(tmp_path: Path, row: Callable[..., None]) -> None:
    (gpu, *_) = observe("cuda").gpus
    assert gpu.sm_clock_mhz
    run = launch(job(tmp_path))
    assert run.problem is None, run.detail
    assert disturbances(run.environment) == []
    assert run.captured == "api, graphs by node"
    row("clock of a run, ECC", f"{run.environment['sm_clock_mhz']:g} MHz, {gpu.ecc}, {gpu.ecc_errors}")


def test_another_process_on_the_gpu_disturbs_a_run(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", FOREIGN, "60"], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            run = launch(job(tmp_path))
        finally:
            other.kill()
    assert any("other compute processes" in why for why in disturbances(run.environment))


def test_one_that_comes_and_goes_during_a_run_is_seen_in_its_samples(tmp_path: Path) -> None:
    """It holds the GPU for 2 s in the middle of a run that takes longer; before and after there is nobody."""
    longer = job(tmp_path, iterations=3_000)

    def visit() -> None:
        while not list(longer.capture.glob("*.aiprof")):
            time.sleep(0.1)
        subprocess.run([sys.executable, "-c", FOREIGN, "2"], check=True, capture_output=True)

    visitor = threading.Thread(target=visit)
    visitor.start()
    run = launch(longer)
    still_there = visitor.is_alive()
    visitor.join()
    assert not still_there, "the run ended before its visitor: give it more iterations"
    assert run.environment["foreign_gpu_processes"] == []
    assert disturbances(run.environment) == ["1 other compute processes came to the GPU"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Four commits; the third one makes the matrices larger."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.delenv("CI", raising=False)
        made = Project(root)
        made.main.write_text(PROGRAM)
        (made.main.parent / "workload.toml").write_text(TOML)
        made.settings('build = "true"')
        made.commit("small")
        made.commit("the same")
        made.set_work(SIZE=2304)
        made.commit("larger")
        made.commit("the same again")
        yield made


def test_against_a_commit_accept_and_bisect(project: Project, row: Callable[..., None]) -> None:
    python = ("--python", sys.executable)
    started = time.monotonic()
    assert main(["gate", "--against", "HEAD~3", *python]) == 1
    (work,) = project.report()["workloads"]
    assert work["reason"] == Reason.REGRESSED.value
    kernel = next(cell for cell in work["cells"] if cell["metric"] == "kernel_time_ms")
    row(
        "kernel time, 2048 to 2304",
        f"{100 * kernel['effect']:+.1f} %, p {kernel['p_adjusted']:.4f}",
        "+30 to +50 %",
    )
    assert main(["gate", "--against", "HEAD~1", *python]) == 0
    row("two gates against a commit, 12 runs each", f"{time.monotonic() - started:.0f} s")
    started = time.monotonic()
    assert main(["bisect", "work", "kernel_time_ms", "HEAD~3", "HEAD", *python]) == 0
    row("a bisection over 3 commits", f"{time.monotonic() - started:.0f} s")


def test_an_accepted_change_is_green_on_the_gpu(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    python = ("--python", sys.executable)
    project.git("checkout", "-q", "HEAD~3")
    assert main(["gate", "--record", *python]) == 0
    project.git("checkout", "-q", "main")
    assert main(["gate", *python]) == 1
    worse = [c["metric"] for c in project.workload()["cells"] if c["reason"] == "regressed"]
    assert main(["accept", "work", *worse, "--reason", "larger matrices"]) == 0
    capsys.readouterr()
    assert main(["gate", *python, "--json"]) == 0
    (work,) = json.loads(capsys.readouterr().out)["workloads"]
    assert work["reason"] == "accepted"
