"""Runs what needs an NVIDIA GPU, part by part, within a time, on a machine that has torch and no network.

    python3 tests/gpu/check.py --out DIR [--minutes 9] [--done FILE] [PART...]

By Python 3.11 or newer, with dist/ai_prof-*.whl and .whl/, wheels of what that machine lacks: both are
installed first. With dist/head.git, a bare clone of HEAD, what is recorded of a commit is of that one. Parts
run in the order of the table below, each whatever became of those before; one that no longer fits into the
time is not begun. Of several GPUs each has a lane of parts, with its share of the cores; what needs them all
comes first. A name stands for all parts that begin with it.

DIR/results.jsonl gets a line as each part ends, DIR/logs.tar.gz what it printed and wrote: a call that is cut
loses only the parts it was in, of which DIR/running-PART.log is left. With the results of an earlier call
given by --done, these are taken over and the parts that ended well left out. The last thing printed is a
table; the exit code is 1 where a part did not end well, or was not begun.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RESULTS, LOGS, RUNNING = "results.jsonl", "logs.tar.gz", "running-{}.log"
BEFORE, AFTER = sysconfig.get_path("scripts"), "/usr/local/cuda/bin"  # of PATH: this Python, then the toolkit
END_S = 20.0  # of the whole time, for a part that is stopped, and for packing
STOPPED = 124
LONGEST = 160  # characters of a line in the table

PYTEST = ("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "--junitxml={out}/junit.xml")
IN_REPOSITORY = ("tests/gpu/in_repository.py", "{work}/repository", "{out}/figures")
OF_BASELINES = r"^ai-prof: .* runs of \d+ sessions?$|^ai-prof: \w+: |^\w*Error"
# The first two take about as long as each other.
FAULTS_OF = {
    "a": (
        "copy_overlap", "cuda_chain", "cupy_kernels", "torch_decode_graph", "torch_train", "triton_kernels",
    ),
    "b": ("cuda_graph", "cuda_native", "torch_decode", "torch_train_compiled", "torch_vision_loader"),
    "jax": ("jax_train",),  # compiles for seconds in each process
}  # fmt: skip
OF_PYTEST = r"^\| |^(FAILED|ERROR) |^=+ .*(passed|failed|error|skipped|deselected|no tests).* =+$"


@dataclass(frozen=True)
class Part:
    """A Python program with its arguments, in which {out}, {work} and {minutes} are replaced.

    It is not begun with less than `usual_s` left, and stopped after `most_s`. `telling` finds the lines of
    its log that are its figures. `alone` says that it takes every GPU. One that is told its {minutes} gets
    `last_s` less than its limit, for what it has begun by then.
    """

    name: str
    usual_s: float
    most_s: float
    words: tuple[str, ...]
    telling: str
    alone: bool = False
    last_s: float = 60.0


@dataclass(frozen=True)
class Result:
    """How a part ended."""

    part: str
    code: int
    seconds: float
    told: list[str]


PARTS = (
    *(
        Part(
            f"gate-faults-{fault}", 180, 330,
            ("tests/gpu/gate_fault.py", "{work}/project", "{out}", "torch_train", fault),
            r"^torch_train[ :]|^settling|^\w+: exit |^ai-prof: (?!torch_train |report )|^\w*Error",
        )
        for fault in ("sync", "slow", "stall", "tiny")
    ),
    Part(
        "overhead-launches", 150, 560,
        (
            *IN_REPOSITORY, "tests/bench/launch_overhead.py",
            "--more", "--minutes", "{minutes}", "--output", "{out}/overhead.md",
        ),
        r"^\| .* \| (met|\*\*not met\*\*|no figure) \|$|failed in|^\w*Error|interleaved rounds",
    ),
    Part(
        "overhead-kinds", 240, 560,
        (
            *IN_REPOSITORY, "tests/bench/launch_overhead.py", "--kinds",
            "--minutes", "{minutes}", "--output", "{out}/kinds.md",
        ),
        r"^\| (nothing|level) .* \|$|failed in|^\w*Error|interleaved rounds",
    ),
    Part(
        "overhead-workloads", 170, 330,
        ("tests/bench/overhead.py", "torch_train", "torch_decode", "--rounds", "3"),
        r" (nothing|kernel|api) |skipped|^\w*Error",
    ),
    Part("programs-kinds", 110, 330, (*PYTEST, "tests/gpu/test_programs_gpu.py"), OF_PYTEST),
    Part("programs-torch", 160, 330, (*PYTEST, "tests/gpu/test_torch_gpu.py"), OF_PYTEST),
    Part("attach", 200, 450, (*PYTEST, "tests/gpu/test_attach_gpu.py"), OF_PYTEST),
    Part(
        "attach-memory", 120, 300, ("tests/gpu/attach_memory.py",),
        r": from round|: alone for|^  [+-]\d|^\w*Error",
    ),
    Part(
        "workloads", 330, 570, ("tests/gpu/check_workloads.py", "--jobs", "8", "--out", "{out}"),
        r"^\d+ processes in|: skipped: |^\w*Error",
    ),
    *(
        Part(
            f"record-{half}", 300, 590,
            ("tests/bench/record.py", "--output", "{out}", "--minutes", "{minutes}"),
            r" launches, \d+ profiles$|^time is up|^forked launches|^a parent ended|^\w*Error",
            last_s=100.0,  # it reads what it recorded
        )
        for half in ("a", "b")  # in random order, so that both have some of everything
    ),
    Part("stories", 90, 300, (*PYTEST, "tests/gpu/test_stories_gpu.py"), OF_PYTEST),
    *(
        Part(
            f"faults-{half}", 150, 590,
            (
                *IN_REPOSITORY, "tests/bench/faults.py", "--forked", "--device", "cuda",
                "--minutes", "{minutes}", *names,
            ),
            r": \w[\w-]*, \d+ runs, |^time is up|^\w*Error",
        )
        for half, names in FAULTS_OF.items()
    ),
    Part("baselines", 260, 570, (*IN_REPOSITORY, "tests/gpu/baselines.py", "{out}"), OF_BASELINES),
    Part(
        "whole-gate", 160, 570, (*IN_REPOSITORY, "-m", "ai_prof", "gate", "--report", "{out}/reports"),
        r"^\w+ +(no finding|unchanged|regressed|improved|skipped)|\(exit \d\)$|^\w*Error",
    ),
    Part(
        "baselines-two", 100, 200, (*IN_REPOSITORY, "tests/gpu/baselines.py", "{out}", "ddp_train"),
        OF_BASELINES, alone=True,
    ),
    Part(
        "aa", 250, 590,
        (
            *IN_REPOSITORY, "tests/bench/aa.py", "--minutes", "{minutes}",
            "torch_decode", "cuda_chain", "cuda_graph",
        ),
        r"^build \d+ of|builds without a change|^\w*Error",
    ),
    Part("gate-tests", 300, 570, (*PYTEST, "tests/gpu/test_gate_gpu.py"), OF_PYTEST),
    Part(
        "markers", 240, 420, ("tests/gpu/record/record.py", "{kept}"),
        r" captures in \d+ archives$|no time left|^--- |^\w*Error",
    ),
    Part(
        "two-gpus", 200, 420, ("tests/gpu/check_workloads.py", "--jobs", "1", "--out", "{out}", "ddp_train"),
        r"^ddp_train|^\d+ processes in|^\w*Error", alone=True,
    ),
)  # fmt: skip


def install() -> None:
    """Install the carried wheels."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    env = {**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1"}  # the machine is bare and goes away
    ours, others = sorted(ROOT.glob("dist/ai_prof-*.whl")), sorted(ROOT.glob(".whl/*.whl"))
    if len(ours) != 1:
        sys.exit(f"{ROOT / 'dist'} holds {len(ours)} wheels of ai-prof: build one there")
    for words in (others, ["--force-reinstall", *ours]):
        if words:
            subprocess.run([*pip, *map(str, words)], env=env, check=True)


def lacking() -> list[str]:
    """The distributions that ai-prof requires and this Python does not have; extras left aside."""
    lines = [line for line in importlib.metadata.requires("ai-prof") or [] if ";" not in line]
    names = {re.split(r"[^\w.-]", line)[0] for line in lines}
    found = {re.sub(r"[-_.]+", "-", str(one.name)).lower() for one in importlib.metadata.distributions()}
    return sorted(names - found)


def look() -> list[str]:
    """Print what the parts need and this machine has, and return its GPUs.

    Ends with 2 where wheels lack, with 3 where a GPU does.
    """
    if missing := lacking():
        print(f"no {', '.join(missing)}: carry their wheels in .whl/")
        sys.exit(2)
    for command in ("git", "g++", "nvcc", "nvidia-smi", "py-spy"):
        print(f"{command}: {shutil.which(command) or 'NOT THERE'}")
    for folder in ("/dev/shm", tempfile.gettempdir()):  # noqa: S108 - where loaders put batches
        print(f"{folder}: {shutil.disk_usage(folder).free >> 20} MB free")
    seen = "import sys, torch; print('torch', torch.__version__); sys.exit(not torch.cuda.is_available())"
    if subprocess.run([sys.executable, "-c", seen], check=False).returncode:
        print(f"{sys.executable} has no torch that sees a GPU: start this with another Python")
        sys.exit(3)
    query = ["nvidia-smi", "--format=csv,noheader"]
    subprocess.run([*query, "--query-gpu=name,driver_version,memory.used"], check=False)
    return subprocess.check_output([*query, "--query-gpu=uuid"], text=True).split()


def chosen(names: list[str]) -> list[Part]:
    """The parts that the names stand for, in the table's order; all where there is no name."""
    found = {name: [p for p in PARTS if p.name == name or p.name.startswith(f"{name}-")] for name in names}
    if unknown := [name for name, parts in found.items() if not parts]:
        sys.exit(f"no part {', '.join(unknown)}; there are: {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not names or any(part in parts for parts in found.values())]


def earlier(path: Path | None) -> list[Result]:
    """The results that an earlier call left; a line that was cut is none."""
    found = []
    for line in path.read_text().splitlines() if path else ():
        with contextlib.suppress(ValueError):
            found.append(Result(**json.loads(line)))
    return found


class Call:
    """The parts of one call, which the lanes take from."""

    def __init__(self, parts: list[Part], end: float, out: Path, work: Path) -> None:
        self.parts, self.end, self.out, self.work = parts, end, out, work
        self.results: list[Result] = []
        self.lock = threading.Lock()

    def next(self, *, alone: bool) -> tuple[Part, float] | None:
        """A part that still fits and for how many seconds at most; None where there is none."""
        with self.lock:
            left_s = self.end - time.monotonic() - END_S
            part = next((p for p in self.parts if p.alone == alone and p.usual_s <= left_s), None)
            if part is None:
                return None
            self.parts.remove(part)
            limit_s = min(part.most_s, left_s)
            print(f"{part.name}: at most {limit_s:.0f} s", flush=True)
            return part, limit_s

    def lane(self, gpus: list[str], cores: set[int], *, alone: bool = False) -> None:
        """Run parts, one after the other, on these GPUs and cores."""
        os.sched_setaffinity(0, cores)  # of this thread, and of what it starts
        while found := self.next(alone=alone):
            result = run(*found, gpus, self.out, self.work / gpus[0])
            with self.lock:
                self.results.append(result)
                keep(result, self.out, self.work)

    def run(self, gpus: list[str]) -> None:
        """Run what takes every GPU, then the rest, on each GPU its own."""
        cores = sorted(os.sched_getaffinity(0))
        self.lane(gpus, set(cores), alone=True)
        lanes = [
            threading.Thread(target=self.lane, args=([gpu], set(cores[i :: len(gpus)]) or set(cores)))
            for i, gpu in enumerate(gpus)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()


def run(part: Part, limit_s: float, gpus: list[str], out: Path, work: Path) -> Result:
    """Run a part for at most so long; its log and files lie in a folder of `work` named by it."""
    folder, log = work / "logs" / part.name, out / RUNNING.format(part.name)
    folder.mkdir(parents=True)
    places = {
        "{out}": str(folder), "{work}": str(work), "{kept}": str(out / part.name),
        "{minutes}": f"{max(1.0, limit_s - part.last_s) / 60:.2f}",
    }  # fmt: skip
    words = [re.sub(r"\{\w+\}", lambda found: places[found[0]], word) for word in part.words]
    # What a part that is killed has printed is there, and no line of it is cut.
    env = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": str(LONGEST),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
    }
    begun = time.monotonic()
    with log.open("wb") as stream:
        code = finish(
            subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, env=env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            ),
            limit_s,
        )  # fmt: skip
    told = figures(log.read_text(errors="replace"), part.telling)
    log.replace(folder / "log.txt")
    return Result(part.name, code, round(time.monotonic() - begun, 1), told)


def finish(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """The exit code; a part that takes too long is interrupted, so that it may still tell, then killed."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S / 2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return STOPPED


def figures(log: str, telling: str) -> list[str]:
    """The lines of a log that tell; where none does, the last one."""
    lines = [line.rstrip() for line in log.replace("\r", "\n").splitlines() if line.strip()]
    return [line for line in lines if re.search(telling, line)] or lines[-1:]


def keep(result: Result, out: Path, work: Path) -> None:
    """Put a result, and the logs so far, where they stay."""
    with (out / RESULTS).open("a") as stream:
        stream.write(json.dumps(asdict(result)) + "\n")
    whole = out / f"{LOGS}.new"
    with tarfile.open(whole, "w:gz") as archive:
        for logs in sorted(work.glob("*/logs")):
            archive.add(logs, "logs", filter=lambda each: each if small(each.name) else None)
    whole.replace(out / LOGS)


def small(name: str) -> bool:
    """Whether a file is to be kept: captures and timelines are too large."""
    return not name.endswith((".aiprof", ".json.gz"))


def table(parts: list[Part], results: list[Result]) -> Iterator[str]:
    """A line for each part and its figures."""
    last = {result.part: result for result in results}
    width = max(len(part.name) for part in parts)
    yield f"{'part':<{width}}  {'s':>6}  exit"
    for part in parts:
        if part.name not in last:
            yield f"{part.name:<{width}}  {'-':>6}  not begun: no time left"
            continue
        result = last[part.name]
        yield f"{part.name:<{width}}  {result.seconds:>6.1f}  {result.code:>4}"
        yield from (f"    {line[:LONGEST]}" for line in result.told)


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=f"of {', '.join(part.name for part in PARTS)}; all if none")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="of the whole call")
    parser.add_argument("--done", type=Path, help="results.jsonl of an earlier call")
    options = parser.parse_args()
    # A shell that starts this in the background has SIGINT ignored, and so would what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + 60 * options.minutes
    parts, results = chosen(options.part), earlier(options.done)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / RESULTS).write_text("".join(json.dumps(asdict(result)) + "\n" for result in results))
    os.environ["PATH"] = os.pathsep.join([BEFORE, os.environ["PATH"], AFTER])
    install()
    gpus = look()
    done = {result.part for result in results if result.code == 0}
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        call = Call([part for part in parts if part.name not in done], end, out, Path(folder))
        call.run(gpus)
    results += call.results
    print(*table(parts, results), sep="\n")
    return 0 if {part.name for part in parts} <= {r.part for r in results if r.code == 0} else 1


if __name__ == "__main__":
    sys.exit(main())
