"""`ai-prof bisect` on a small repository whose workload's speed is written in its code."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fake_project import Project, enter

from ai_prof.cli import main
from ai_prof.collect.autostart import library_path
from ai_prof.runs.host_lock import host_lock

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return enter(tmp_path, monkeypatch)


def history(project: Project, slow: int, broken: tuple[int, ...] = ()) -> list[str]:
    """Six commits: slower and with more kernels from number `slow` on; the broken ones don't build."""
    project.settings('build = "test ! -e broken"')
    commits = []
    for number in range(6):
        (project.root / "broken").unlink(missing_ok=True)
        if number in broken:
            (project.root / "broken").write_text("")
        if number == slow:
            project.set_work(KERNEL_NS=110_000, KERNELS=11)
        (project.root / "number").write_text(str(number))
        commits.append(project.commit(f"change {number}\x1b[2J"))
    (project.root / "broken").unlink(missing_ok=True)
    return commits


def bisect(metric: str, good: str, bad: str) -> int:
    return main(["bisect", "work", metric, good, bad])


def test_the_commit_that_made_it_slower_is_found_and_the_checkout_left_alone(project, capsys):
    commits = history(project, slow=4, broken=(2,))
    project.main.write_text(project.main.read_text() + "# not committed\n")
    before = project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")
    assert bisect("kernel_time_ms", commits[0], "main") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].endswith("ada: change 4\\x1b[2J")
    assert "kernel time per iteration grew 2" in said.out.splitlines()[1]
    assert f"{commits[2][:12]} is left out: the build command ended with 1" in said.err
    assert (project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")) == before
    assert "bisect" not in project.git("worktree", "list")
    assert project.git("for-each-ref", "refs/bisect") == ""


def test_one_waits_for_another_in_the_same_checkout(project, capfd):
    commits = history(project, slow=4)
    (project.root / ".ai-prof").mkdir()
    held, ended = threading.Event(), threading.Event()
    said = []

    def other() -> None:
        with host_lock(["bisect"], project.root / ".ai-prof"):
            held.set()
            while "another capture holds bisect" not in "".join(said) and not ended.wait(0.05):
                said.append(capfd.readouterr().err)
            said.append(f"worktree: {(project.root / '.ai-prof' / 'bisect').exists()}")

    one = threading.Thread(target=other)
    one.start()
    held.wait()
    assert bisect("kernels", commits[3], "main") == 0
    ended.set()
    one.join()
    assert "another capture holds bisect" in "".join(said)
    assert said[-1] == "worktree: False"
    assert "ada: change 4" in capfd.readouterr().out


def test_where_only_broken_commits_are_left_all_suspects_are_named(project, capsys):
    commits = history(project, slow=4, broken=(3, 4))
    assert bisect("kernels", commits[2], commits[5]) == 5
    out = capsys.readouterr().out
    assert [f"change {i}" in out for i in (2, 3, 4, 5)] == [False, True, True, True]


def test_what_cannot_be_bisected_is_said(project, capsys):
    commits = history(project, slow=4, broken=(1,))
    assert bisect("syncs", commits[0], commits[5]) == 3
    said = capsys.readouterr().err
    assert "synchronizes per iteration are as many" in said
    assert said.endswith("; name a metric that regressed, or try again on a quiet machine\n")
    assert bisect("syncs", commits[0], commits[1]) == 4
    said = capsys.readouterr().err
    assert "cannot be run: the build command ended with 1" in said
    assert "`build` in [tool.ai-prof] is not set" not in said
    project.settings("")
    assert bisect("syncs", commits[0], commits[2]) == 3
    assert "`build` in [tool.ai-prof] is not set: commits are run unbuilt" in capsys.readouterr().err
    assert bisect("syncs", commits[5], commits[0]) == 2
    assert "does not come before" in capsys.readouterr().err
    assert bisect("syncs", "HEAD", "main") == 2
    assert "HEAD and main are one commit" in capsys.readouterr().err
    assert bisect("syncs", "nowhere", commits[0]) == 2
    with pytest.raises(SystemExit):
        bisect("host_profile", commits[0], commits[1])
