"""Programs to attach to, built from capture/tests/mock, and what tests look at in them."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ai_prof.collect.autostart import INJECTION, library_path
from ai_prof.collect.control import State, find_control
from ai_prof.collect.procfs import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HARNESS = Path(__file__).parent.parent / "harness"
TRY_PTRACE = "import sys; from ai_prof.collect.ptrace import Tracee; Tracee(int(sys.argv[1]))"
COUNTERS = [
    "quit",
    "waits",
    "interrupted",
    "wrong",
    "computed",
    "launched",
    "signals",
    "subscribed",
    "finalized",
    "asked",
    "answered",
]


def mocks() -> Path:
    """The folder of the built mocks; skips where there are none."""
    folder = os.environ.get("MOCKS_FOLDER")
    if not folder:
        pytest.skip("MOCKS_FOLDER does not name the folder of the built mocks (nox -s tests sets it)")
    return Path(folder)


@cache
def ptrace_works() -> None:
    """Skips where we may not attach to a process that is no child of ours."""
    sleeper = subprocess.Popen(["sleep", "60"])
    words = [sys.executable, "-c", TRY_PTRACE, str(sleeper.pid)]
    tried = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    sleeper.kill()
    sleeper.wait()
    if tried.returncode:
        pytest.skip(f"ptrace is refused here: {tried.stderr.strip().splitlines()[-1]}")


def is_recorded(process: Process) -> bool:
    """Whether a capture of it is under way."""
    control = find_control(process)
    return control is not None and control.state == State.RECORDING


def until(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether `true` came to hold in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@dataclass
class Target:
    """A running attach_target."""

    folder: Path
    wait: str = "poll"
    cuda: bool = True
    cupti: str = "own"  # "own": mapped from the start; "late": it comes with us
    launches: int = 1  # kernels that a thread launches every ms
    allocators: int = 0
    standby: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    under: tuple[str, ...] = ()  # the words of a launcher before its own
    page: mmap.mmap = field(init=False)
    program: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        built = mocks()
        self.folder.mkdir(parents=True, exist_ok=True)
        counters = self.folder / "counters"
        counters.write_bytes(bytes(4096))
        shutil.copy(built / "libcupti_mock.so", self.libcupti)
        driver = shutil.copy(built / "libcuda_mock.so", self.folder / "libcuda.so.1")
        with counters.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), 4096)
        own = self.inside(self.libcupti)
        cupti = {"own": own, "late": f"+{own}", "none": "-"}[self.cupti]
        cuda = self.inside(driver) if self.cuda else "-"
        rest = [cuda, cupti, str(self.launches), str(self.allocators)]
        words = [*self.under, self.inside(built / "attach_target"), self.wait, self.inside(counters), *rest]
        with (self.folder / "stderr").open("wb") as errors:
            self.program = subprocess.Popen(words, stderr=errors, env=self.environment())
        assert until(lambda: self.count("computed") > 0 and (not self.launches or self.count("launched") > 0))

    def environment(self) -> dict[str, str]:
        bare = environment(**self.variables)
        library = library_path()
        assert library is not None
        standby = {"AI_PROF_ENABLE": "standby", INJECTION: self.inside(Path(library))}
        return bare | standby if self.standby else bare

    def inside(self, path: Path) -> str:
        """How the program names `path`."""
        return str(path)

    @property
    def libcupti(self) -> Path:
        return self.folder / "libcupti.so.13"

    @property
    def pid(self) -> int:
        return self.program.pid

    @property
    def process(self) -> Process:
        return Process(self.pid)

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def count(self, name: str) -> int:
        return struct.unpack_from("<Q", self.page, 8 * COUNTERS.index(name))[0]

    def ask(self) -> None:
        """Have it cancel or post once more, and wait until it has."""
        struct.pack_into("<Q", self.page, 8 * COUNTERS.index("asked"), self.count("asked") + 1)
        assert until(lambda: self.count("answered") == self.count("asked"))

    def launch(self) -> None:
        """Wait until it has launched kernels, which a capture that is under way then has."""
        launched = self.count("launched")
        assert until(lambda: self.count("launched") > launched + 2)

    def descriptors(self) -> list[Path]:
        """What its descriptors lead to, in order, without those that are closed meanwhile."""
        found = []
        for link in (self.process.path / "fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(link.readlink())
        return sorted(found)

    def threads(self) -> list[str]:
        return [self.process.thread_name(thread) for thread in self.process.threads()]

    def resident_mb(self) -> float:
        return int(self.process.status()["VmRSS"].split()[0]) / 1024

    def blocked_signals(self) -> int:
        """Those that its main thread blocks, as a mask."""
        return int(self.process.status()["SigBlk"], 16)

    def assert_goes_on(self) -> None:
        """It computes and waits as before, nobody traces it, and nothing it saw was wrong."""
        waits, computed = self.count("waits"), self.count("computed")
        if self.wait in {"poll", "epoll", "sleep", "condition"}:
            assert until(lambda: self.count("waits") >= waits + 2)
        assert until(lambda: self.count("computed") > computed)
        status = self.process.status()
        assert status["TracerPid"] == "0"
        assert status["State"][0] in "RS"
        assert self.count("wrong") == 0
        assert self.errors == ""

    def end(self) -> int:
        """Its exit code, 7 when all is well."""
        struct.pack_into("<Q", self.page, 0, 1)
        try:
            return self.program.wait(120)
        finally:
            self.kill()

    def kill(self) -> None:
        struct.pack_into("<Q", self.page, 0, 1)  # for those that a launcher started
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()


@contextmanager
def starting(folder: Path) -> Iterator[Callable[..., Target]]:
    """What starts targets in `folder`; whatever happens, they are gone at the end."""
    targets: list[Target] = []

    def start(**wishes: object) -> Target:
        targets.append(Target(folder / f"target-{len(targets)}", **wishes))  # type: ignore[arg-type]
        return targets[-1]

    try:
        yield start
    finally:
        for target in targets:
            target.kill()


def ai_prof(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run our command to its end."""
    return subprocess.run(
        command(*words),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ai_prof", *map(str, words)]


def environment(**variables: str) -> dict[str, str]:
    bare = {k: v for k, v in os.environ.items() if not k.startswith("AI_PROF_")}
    return bare | {"PYTHONPATH": str(HARNESS)} | variables
