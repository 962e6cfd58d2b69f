"""What the program must not notice of its borrowed thread: its descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attach_targets import Target, mocks, ptrace_works

from ai_prof.collect import borrow
from ai_prof.collect import x86_64 as cpu
from ai_prof.collect.attach import attach
from ai_prof.collect.borrow import Borrowed
from ai_prof.errors import AttachRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def ptrace_is_allowed() -> None:
    mocks()
    ptrace_works()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Target]]:
    """Starts a target whose one thread to borrow waits in the call of that name."""
    targets: list[Target] = []

    def begin(wait: str) -> Target:
        targets.append(Target(tmp_path / "target", wait=wait, launcher=False))
        return targets[-1]

    yield begin
    for target in targets:
        target.kill()


def test_a_thread_with_descriptors_of_its_own_is_not_borrowed(
    start: Callable[[str], Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borrow, "FIND_SECONDS", 0.2)
    target = start("apart")
    with pytest.raises(AttachRefusedError, match="no thread to borrow"):
        attach([target.pid], tmp_path / "out", {})
    # Where the kernel does not tell: what stands at the same number in the process's table is not touched.
    monkeypatch.setattr(borrow, "shares_descriptors", lambda *_: True)
    before = target.descriptors()
    with pytest.raises(AttachRefusedError, match="do not share their descriptors"):
        attach([target.pid], tmp_path / "out", {})
    assert target.descriptors() == before
    target.assert_goes_on()
    assert target.end() == 7


def test_a_file_that_came_to_stand_where_our_memfd_was_is_not_touched(
    start: Callable[[str], Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start("poll")
    original = Borrowed.system_call
    standard_error = 2  # a file, which the target leaves empty

    def system_call(self: Borrowed, number: int, *arguments: int) -> int:
        result = original(self, number, *arguments)
        return standard_error if number == cpu.NR_MEMFD_CREATE else result

    (target.folder / "stderr").write_text("precious")
    monkeypatch.setattr(Borrowed, "system_call", system_call)
    with pytest.raises(AttachRefusedError, match="closes descriptors that it did not open"):
        attach([target.pid], tmp_path / "out", {})
    assert target.errors == "precious"
    assert target.end() == 7
