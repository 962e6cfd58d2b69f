"""Programs on a real GPU to attach to, as an ordinary user where we may become one, and what they saw."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.trace.model import Trace

PROGRAMS = Path(__file__).parent / "programs"
NOBODY = 65534
PROBE = """
import sys, torch
from ai_prof.collect.ptrace import Tracee
torch.zeros(1).cuda()
Tracee(int(sys.argv[1]))
"""
SETTLED_NS = 300_000_000  # left out at both ends of a capture


@dataclass
class Place:
    """A folder that an ordinary user can use, and that user."""

    path: Path
    user: dict[str, Any]

    @classmethod
    def make(cls) -> Place:
        path = Path(tempfile.mkdtemp(prefix="attach-gpu-", dir="/tmp"))
        for program in ("steps.py", "raw.cu"):
            shutil.copy(PROGRAMS / program, path)
        path.chmod(0o777)
        if os.geteuid() != 0:
            return cls(path, {})
        place = cls(path, {"user": NOBODY, "group": NOBODY, "extra_groups": []})
        try:
            sleeper = place.start(["sleep", "100"])
            probe = place.start([sys.executable, "-c", PROBE, sleeper.pid])
            usable = probe.wait(120) == 0
            sleeper.kill()
            sleeper.communicate()
            probe.communicate()
        except OSError:
            usable = False
        return place if usable else cls(path, {})

    @property
    def who(self) -> str:
        return f"user {self.user.get('user', os.geteuid())}"

    def environment(self, **variables: str) -> dict[str, str]:
        bare = {k: v for k, v in os.environ.items() if not k.startswith(("AI_PROF_", "PYTEST_"))}
        ours = {
            "HOME": str(self.path),
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        return bare | ours | variables

    def start(self, words: list[object], **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(word) for word in words], cwd=self.path, env=self.environment(**variables),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **self.user,
        )  # fmt: skip

    def ai_prof(self, *words: object) -> tuple[int, str]:
        """Our command as that user; its exit code and what it said."""
        done = self.start([sys.executable, "-m", "ai_prof", *words])
        out, errors = done.communicate(timeout=200)
        return done.returncode, errors + out


@dataclass
class Steps:
    """A program that does steps; `kind` is train, decode, jax or raw."""

    place: Place
    kind: str
    name: str
    most: int | None = None
    capture: Path | None = None  # from the program's start
    variables: dict[str, str] = field(default_factory=dict)  # of its environment
    program: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.folder.chmod(0o777)
        words: list[object] = [sys.executable, self.place.path / "steps.py", self.kind, self.folder]
        if self.kind == "raw":
            words = [self.place.path / "raw", self.folder]
        if self.most is not None:
            words.append(self.most)
        watched = dict(self.variables)
        if self.capture is not None:
            output = {"AI_PROF_OUTPUT": str(self.capture)}
            watched |= {"AI_PROF_ENABLE": "1", "AI_PROF_LEVEL": "api"} | output
        self.program = self.place.start(words, **watched)

    @property
    def folder(self) -> Path:
        return self.place.path / self.name

    def await_file(self, name: str, seconds: float = 120.0) -> Path:
        deadline = time.monotonic() + seconds
        while not (self.folder / name).exists():
            if self.program.poll() is not None:
                msg = f"{self.name} ended with {self.program.returncode}: {self.program.communicate()[1]}"
                raise AssertionError(msg)
            assert time.monotonic() < deadline, f"{self.name} wrote no {name}"
            time.sleep(0.02)
        return self.folder / name

    def profiled(self) -> dict[str, int]:
        """What torch.profiler sees in the program, now."""
        (self.folder / "profile").touch()
        seen: dict[str, int] = json.loads(self.await_file("profiled.json").read_text())
        return seen

    def finish(self, seconds: float = 200) -> tuple[npt.NDArray[np.int64], list[float]]:
        """Times and results of its steps, when it has ended well."""
        _, errors = self.program.communicate(timeout=seconds)
        assert self.program.returncode == 0, f"{self.name}: {errors}"
        said = json.loads((self.folder / "steps.json").read_text())
        return np.array(said["times"], dtype=np.int64), said["results"]

    def end(self) -> tuple[npt.NDArray[np.int64], list[float]]:
        """End it; as `finish`."""
        (self.folder / "stop").touch()
        return self.finish()

    def kill(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
            self.program.communicate()


class Steady(NamedTuple):
    """How much device work began in a step, of the steps that lie well inside a capture.

    `operations` are kernels, copies and sets together: of a CUDA graph that was made before the capture the
    driver runs a small copy as a kernel of its own, which a graph made under it reports as a copy.
    """

    operations: set[int]
    kernels: set[int]

    @classmethod
    def of(cls, trace: Trace, times: npt.NDArray[np.int64]) -> Steady:
        begin, end = trace.kernels.start.min() + SETTLED_NS, trace.kernels.end.max() - SETTLED_NS
        inside = times[(times > begin) & (times < end)]
        kernels, copies = (
            np.diff(np.searchsorted(table.start, inside)) for table in (trace.kernels, trace.memory)
        )
        return cls(set((kernels + copies).tolist()), set(kernels.tolist()))

    def __str__(self) -> str:
        return f"{sorted(self.operations)}, {sorted(self.kernels)} of them kernels"


def launches_found(trace: Trace) -> float:
    """The share of the kernels whose launching call was recorded too."""
    return float(np.isin(trace.kernels.correlation, trace.calls.correlation).mean())


def capture_of(folder: Path, pid: int) -> Trace:
    """The capture of one process of several in `folder`."""
    (path,) = folder.glob(f"*-{pid}-*.aiprof")
    return open_trace(path)
