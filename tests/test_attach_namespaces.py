"""Attaching across namespaces: a target in a small root of its own, as in another container."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attach_targets import Target, ai_prof, command, environment, mocks, ptrace_works, until

from ai_prof.collect.autostart import library_path
from ai_prof.collect.tree import family
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--kill-child")
ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'


def libraries(program: Path) -> list[Path]:
    """What the loader needs to start it."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"(/\S+)", listed)]


@dataclass
class Jailed(Target):
    """A target with its own mount, PID, network and user namespaces, and another root file system."""

    def __post_init__(self) -> None:
        self.root = self.folder
        (self.root / "proc").mkdir(parents=True)
        program, library = mocks() / "attach_target", library_path()
        assert library is not None
        for path in (*libraries(program), *libraries(Path(library)), program, Path(library)):
            place = self.root / path.relative_to("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        self.folder = self.root / "work"
        self.under = (*NAMESPACES, "sh", "-c", ENTER, str(self.root))
        super().__post_init__()

    def inside(self, path: Path) -> str:
        return f"/{path.relative_to(self.root if path.is_relative_to(self.root) else '/')}"

    @cached_property
    def pid(self) -> int:  # type: ignore[override]
        return family(self.program.pid)[-1]


@pytest.fixture(scope="module", autouse=True)
def namespaces_are_allowed() -> None:
    ptrace_works()
    words = [*NAMESPACES, "--mount-proc", "chroot", "/", "true"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"namespaces are refused here: {tried.stderr.strip()}")


def test_a_target_in_another_root_is_captured(tmp_path: Path) -> None:
    target = Jailed(tmp_path / "root")
    try:
        assert target.process.inner_pid() == 1
        before = target.descriptors()
        done = ai_prof("attach", "--pid", target.pid, "--duration", "0.5", "--output", tmp_path / "out")
        assert done.returncode == 0, done.stderr
        trace = open_trace(tmp_path / "out")
        assert len(trace.kernels.start) > 0
        assert trace.processes[0].pid == 1
        assert until(lambda: target.descriptors() == before)
        target.assert_goes_on()
        assert target.end() == 7
    finally:
        target.kill()


def test_one_that_stands_by_records_only_where_both_see(tmp_path: Path) -> None:
    target = Jailed(tmp_path / "root", standby=True)
    try:
        done = ai_prof("attach", "--pid", target.pid, "--duration", "0.5", "--output", tmp_path / "out")
        assert done.returncode == 4
        assert f"does not see {tmp_path / 'out'}" in done.stderr
        target.assert_goes_on()
    finally:
        target.kill()


@pytest.mark.parametrize("ahead", ["1000", "-1000"])
def test_a_target_whose_clock_is_another_keeps_the_deadline(
    ahead: str, start: Callable[..., Target], tmp_path: Path
) -> None:
    offset = ("unshare", "--time", "--monotonic", ahead, "--kill-child")
    if subprocess.run([*offset, "true"], capture_output=True, check=False).returncode:
        pytest.skip("time namespaces are refused here")
    target = start(under=offset)
    began = time.monotonic()
    pid = family(target.pid)[-1]
    done = ai_prof("attach", "--pid", pid, "--duration", "1", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert 1 < time.monotonic() - began < 20


def test_from_a_user_namespace_the_reason_is_told(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        words = ["unshare", "--user", "--map-root-user", *command("attach", "--pid", sleeper.pid)]
        words += ["--output", str(tmp_path / "out")]
        done = subprocess.run(
            words, env=environment(), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 4, done.stderr
        assert "user namespace forbids it: run it on the host" in done.stderr
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_ids_of_another_namespace_are_not_taken_for_ours(target: Target, tmp_path: Path) -> None:
    inside = ["unshare", "--pid", "--fork"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("PID namespaces are for root alone here")
    words = inside + command("attach", "--pid", target.pid, "--output", tmp_path / "out")
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 4, done.stderr
    assert "/proc is that of another PID namespace" in done.stderr
    target.assert_goes_on()
