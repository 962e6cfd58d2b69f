"""`ai-prof attach --stacks`: what py-spy sees, put beside the records and on their clock."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attach_targets import Target, ai_prof, command, environment, is_recorded, mocks, ptrace_works, until
from hypothesis import given
from hypothesis import strategies as st

from ai_prof import cli
from ai_prof.cli import attach as verb
from ai_prof.collect import stacks
from ai_prof.collect.procfs import Process
from ai_prof.collect.stacks import Sampler, Stack, StackInterval, stack_lines, zero_of
from ai_prof.errors import EnvironmentInvalidError
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NS = st.integers(0, 10**12)


@given(zero=NS, last=NS, seen=st.tuples(NS, NS, NS | st.none(), NS))
def test_the_zero_lies_within_its_error(zero: int, last: int, seen: tuple[int, int, int | None, int]) -> None:
    """Whatever the distances between what is seen and what happened."""
    before, spoke, asked, ended = seen
    asked_at = None if asked is None else zero + last - asked
    found, error = zero_of(zero - before, zero + spoke, asked_at, zero + last + ended, last)
    assert abs(found - zero) <= error


def event(kind: str, name: str, ts: int, file: str = "/app/train.py") -> stacks._Event:
    return stacks._Event(name, kind, 7, ts, {"filename": file})


def test_events_become_stretches_of_one_stack() -> None:
    events = [
        event("B", "thread (0x29): MainThread", 10, ""),
        event("B", "<module>", 10),
        event("B", "step", 10),
        event("E", "step", 30),
        event("B", "log", 30),
        event("E", "log", 45),
        event("B", "step", 45),
        event("E", "step", 50),
        event("E", "<module>", 50),
        event("E", "thread (0x29): MainThread", 50, ""),
    ]
    step = ("<module> (/app/train.py)", "step (/app/train.py)")
    log = ("<module> (/app/train.py)", "log (/app/train.py)")
    assert list(stack_lines(events, 1_000_000)) == [
        Stack(0, step),
        StackInterval(1_010_000, 1_030_000, 41, 0),
        Stack(1, log),
        StackInterval(1_030_000, 1_045_000, 41, 1),
        StackInterval(1_045_000, 1_050_000, 41, 0),
    ]


def test_without_py_spy_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stacks.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(stacks.shutil, "which", lambda _: None)
    with pytest.raises(EnvironmentInvalidError, match=r"pip install 'ai-prof\[stacks\]'"):
        stacks.find_py_spy()


def counted(steps: Path) -> int:
    """How many the program has done; 0 while it writes that down."""
    return int(steps.read_text() or 0)


def test_a_slow_logging_call_is_named(tmp_path: Path) -> None:
    ptrace_works()
    driver = shutil.copy(mocks() / "libcuda_mock.so", tmp_path / "libcuda.so.1")
    cupti = shutil.copy(mocks() / "libcupti_mock.so", tmp_path / "libcupti.so.13")
    source = Path(__file__).parent / "attach_logging.py"
    out, steps = tmp_path / "out", tmp_path / "steps"
    steps.touch()
    words = [sys.executable, source, driver, cupti, steps]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        attacher = subprocess.Popen(
            command("attach", "--pid", program.pid, "--stacks", "--output", out), env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert until(lambda: is_recorded(Process(program.pid)))
            begun = counted(steps)
            assert until(lambda: counted(steps) > begun + 100)
            assert ai_prof("stop", "--pid", program.pid).returncode == 0
            assert attacher.wait(300) == 0
            assert program.poll() is None
        finally:
            program.kill()
            said, errors = attacher.communicate()  # it ends with its target
    assert "no stacks" not in errors
    assert "Look at log_metrics (attach_logging.py)" in said, said + errors
    trace = open_trace(out)
    assert trace.stacks is not None
    assert trace.stacks.error_ns > 0
    summary = json.loads(ai_prof("summary", "--input", out, "--json").stdout)
    gaps = [gap for gap in summary["devices"][0]["longest_gaps"] if gap["cause"] == "host"]
    inside = [gap for gap in gaps if "log_metrics (attach_logging.py)" in gap["frames"][0]["frames"]]
    assert len(inside) * 2 > len(gaps) > 0
    (host,) = (finding for finding in summary["findings"] if finding["id"] == "gap-host")
    assert host["evidence"]["function"] == "log_metrics (attach_logging.py)"
    assert host["evidence"]["function_share"] > 0.5


@pytest.fixture
def logging_program(tmp_path: Path) -> Iterator[int]:
    """The process of attach_logging.py, at work."""
    driver = shutil.copy(mocks() / "libcuda_mock.so", tmp_path / "libcuda.so.1")
    cupti = shutil.copy(mocks() / "libcupti_mock.so", tmp_path / "libcupti.so.13")
    words = [sys.executable, Path(__file__).parent / "attach_logging.py", driver, cupti, tmp_path / "steps"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        yield program.pid
        program.kill()


def spoil(end: Callable[[Sampler, Path | None], str | None], how: str) -> Callable[..., str | None]:
    def spoiled(self: Sampler, path: Path | None) -> str | None:
        assert path is not None
        if how == "killed":
            self._program.kill()
            self._program.wait()
        else:
            path.with_name(path.name + ".partial").symlink_to("/dev/full")
        return end(self, path)

    return spoiled


@pytest.mark.parametrize("ending", [("killed", "py-spy ended with -9"), ("full", "No space left")])
def test_stacks_that_can_not_be_kept_take_no_capture_along(
    ending: tuple[str, str],
    logging_program: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ptrace_works()
    how, told = ending
    monkeypatch.setattr(Sampler, "end", spoil(Sampler.end, how))
    monkeypatch.setattr(verb, "end_in_order", lambda: None)  # the signals of this process are not the verb's
    out = tmp_path / "out"
    words = ["attach", "--pid", str(logging_program), "--stacks", "--duration", "0.5", "--output", str(out)]
    assert cli.main(words) == 0
    assert told in capsys.readouterr().err
    assert [path.suffix for path in out.iterdir()] == [".aiprof"]


def test_a_program_without_python_is_captured_without_stacks(target: Target, tmp_path: Path) -> None:
    ptrace_works()
    out = tmp_path / "out"
    done = ai_prof("attach", "--pid", target.pid, "--stacks", "--duration", "0.5", "--output", out)
    assert done.returncode == 0, done.stderr
    assert f"no stacks of process {target.pid}" in done.stderr
    assert open_trace(out).stacks is None
    assert not list(out.glob("*.jsonl"))
    target.assert_goes_on()
