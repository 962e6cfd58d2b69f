"""Which processes under a launcher are captured, told from a /proc of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ai_prof.collect.tree import cuda_processes, family
from ai_prof.errors import NothingToCompareError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

FORKED = 0x40
DRIVER = "7f00-7f10 r--p 00000000 fe:00 12 /usr/lib/libcuda.so.580.1\n"
RUNTIME = "7f00-7f10 r--p 00000000 fe:00 12 /usr/lib/libcudart.so.13\n"


def add(proc: Path, pid: int, parent: int, maps: str = "", flags: int = 0, *, thread: str = "python") -> None:
    folder = proc / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    (folder / "task" / str(pid) / "comm").write_text(f"{thread}\n")
    (folder / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1 0 -1 {flags} 0 0\n")
    (folder / "status").write_text(f"Name:\tx\nPid:\t{pid}\n")
    (folder / "maps").write_text(maps)


def test_the_workers_and_not_the_launcher_or_their_loaders(tmp_path: Path) -> None:
    add(tmp_path, 1, 0, DRIVER)
    add(tmp_path, 10, 1, RUNTIME)  # torchrun
    add(tmp_path, 11, 10, DRIVER)
    add(tmp_path, 12, 10, DRIVER)
    add(tmp_path, 13, 12, DRIVER, FORKED)  # a loader's worker
    add(tmp_path, 14, 12, DRIVER, FORKED, thread="cuda-EvtHandlr")  # its CUDA is its own
    add(tmp_path, 15, 11, "", 0)  # a shell
    add(tmp_path, 16, 15, DRIVER)
    add(tmp_path, 20, 1, DRIVER)  # another job
    (tmp_path / "self").mkdir()
    assert family(10, tmp_path) == [10, 11, 12, 15, 13, 14, 16]
    assert cuda_processes([10], tmp_path) == [11, 12, 14, 16]
    assert cuda_processes([12, 10], tmp_path) == [12, 14, 11, 16]


def test_a_server_that_forks_before_it_uses_cuda(tmp_path: Path) -> None:
    add(tmp_path, 10, 1)
    add(tmp_path, 11, 10, DRIVER, FORKED)
    assert cuda_processes([10], tmp_path) == [11]


def test_none_is_nothing_to_show(tmp_path: Path) -> None:
    add(tmp_path, 10, 1, RUNTIME)
    with pytest.raises(NothingToCompareError, match=r"no process under 10 has loaded CUDA.*`ai-prof run`"):
        cuda_processes([10], tmp_path)
    with pytest.raises(UsageError, match="no process 99"):
        cuda_processes([99], tmp_path)
