"""The three ways to start a capture set the same variables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiprof_file as af
import pytest

from ai_prof.cli import main
from ai_prof.collect.autostart import add_injection, library_path, share_capture
from ai_prof.collect.environment import capture_environment
from ai_prof.errors import EnvironmentInvalidError

SHOW = """
import os
import signal
names = ("AI_PROF_ENABLE", "AI_PROF_OUTPUT", "CUDA_INJECTION64_PATH", "OPENCL_LAYERS")
print({name: os.environ[name] for name in names if name in os.environ})
"""


def python_sees(**variables: str) -> dict[str, str]:
    """The variables that a Python started with `variables` ends up with."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("AI_PROF_", "CUDA_INJ", "OPENCL_L"))}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=bare | variables, capture_output=True, text=True, check=True
    )
    return eval(done.stdout)  # noqa: S307 - our own child's repr


def test_the_pth_file_sets_what_run_sets(tmp_path: Path) -> None:
    seen = python_sees(AI_PROF_ENABLE="1", AI_PROF_OUTPUT=str(tmp_path))
    asked = capture_environment(tmp_path, "api", {})
    for name in ("CUDA_INJECTION64_PATH", "OPENCL_LAYERS", "AI_PROF_OUTPUT"):
        assert seen[name] == asked[name]


@pytest.mark.parametrize("variables", [{}, {"AI_PROF_ENABLE": "0"}, {"AI_PROF_OUTPUT": "out"}])
def test_the_pth_file_sets_nothing_when_not_enabled(variables: dict[str, str]) -> None:
    assert python_sees(**variables) == variables


def test_children_share_one_capture_in_one_folder() -> None:
    first = {"AI_PROF_OUTPUT": "out"}
    share_capture(first)
    assert Path(first["AI_PROF_OUTPUT"]).is_absolute()
    again = dict(first)
    share_capture(again)
    assert again == first


def test_a_folder_that_is_gone_ends_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    environ = {"AI_PROF_OUTPUT": "out"}
    share_capture(environ)
    assert environ["AI_PROF_OUTPUT"] == "out"


def test_injection_is_idempotent_and_keeps_other_layers() -> None:
    environ = {"OPENCL_LAYERS": "/other.so"}
    assert add_injection(environ, "/libai_prof.so") is None
    assert add_injection(environ, "/libai_prof.so") is None
    assert environ == {"OPENCL_LAYERS": "/other.so:/libai_prof.so", "CUDA_INJECTION64_PATH": "/libai_prof.so"}


def test_one_installation_records_at_a_time(tmp_path: Path) -> None:
    theirs = tmp_path / "libai_prof.so"
    theirs.touch()
    started = {"OPENCL_LAYERS": f"/other.so:{theirs}", "CUDA_INJECTION64_PATH": str(theirs)}
    # Whoever started a program records it, whatever else is installed for its Python.
    assert python_sees(AI_PROF_ENABLE="1", **started).items() >= started.items()
    # Whoever starts a program next takes over.
    env = capture_environment(tmp_path, "api", started)
    assert env["OPENCL_LAYERS"] == f"/other.so:{library_path()}"
    assert env["CUDA_INJECTION64_PATH"] == library_path()


def test_a_foreign_injection_is_kept_and_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentInvalidError, match=r"/nsys\.so"):
        capture_environment(tmp_path, "api", {"CUDA_INJECTION64_PATH": "/nsys.so"})


def test_a_capture_is_its_own_and_keeps_what_the_user_set(tmp_path: Path) -> None:
    outer = {"AI_PROF_OUTPUT": "/o", "AI_PROF_LEVEL": "api", "AI_PROF_CAPTURE_ID": "outer"}
    env = capture_environment(tmp_path, "kernel", {**outer, "AI_PROF_BUFFER_MB": "512"})
    assert env["AI_PROF_OUTPUT"] == str(tmp_path)
    assert env["AI_PROF_LEVEL"] == "kernel"
    assert env["AI_PROF_CAPTURE_ID"] != "outer"
    assert env["AI_PROF_BUFFER_MB"] == "512"


def test_env_prints_lines_that_a_shell_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--output", str(tmp_path / "a b"), "--note", "batch=32"]) == 0
    script = capsys.readouterr().out + '\necho "$AI_PROF_OUTPUT|$AI_PROF_NOTE|$CUDA_INJECTION64_PATH"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{tmp_path / 'a b'}|batch=32|{library_path()}"


def test_run_gives_the_programs_own_code(tmp_path: Path) -> None:
    arguments = ["run", "--output", str(tmp_path / "out"), "--", sys.executable, "-c", "raise SystemExit(7)"]
    assert main(arguments) == 7


def test_run_of_a_program_without_gpu_work_is_nothing_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--output", str(tmp_path / "out"), "--", sys.executable, "-c", "pass"]) == 3
    assert "no CUDA and no OpenCL" in capsys.readouterr().err


def test_run_of_a_missing_program_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--output", str(tmp_path / "out"), "--", "/no/such/program"]) == 2
    assert "cannot start /no/such/program" in capsys.readouterr().err


def test_run_never_mixes_two_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "host-1-0.aiprof").write_bytes(b"")
    assert main(["run", "--output", str(tmp_path), "--", sys.executable, "-c", "pass"]) == 2
    assert "already holds a capture" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["attach", "--pid", "1", "--output"], ["run", "--output"]])
def test_a_file_is_no_folder_to_record_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    file = tmp_path / "trace.json"
    file.write_text("mine")
    assert main([*verb, str(file), *(["--", "true"] if verb[0] == "run" else [])]) == 2
    assert f"cannot record into {file}: it is a file; name another folder with" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_run_refuses_before_the_program_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    program = ["--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    assert main(["run", "--output", str(tmp_path / "file"), *program]) == 2
    assert "cannot record into" in capsys.readouterr().err
    assert main(["run", "--output", str(tmp_path / "out"), "--note", "batch", *program]) == 2
    assert "batch is not KEY=VALUE" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_run_leaves_no_empty_folder(tmp_path: Path) -> None:
    assert main(["run", "--output", str(tmp_path / "out"), "--", sys.executable, "-c", "pass"]) == 3
    assert list(tmp_path.iterdir()) == []


def test_run_says_what_the_capture_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = af.Program()
    capture.launch("k", 5_000)
    data = capture.data(closed=False)
    out = tmp_path / "out"
    code = f"open({str(out / 'h-1-0.aiprof')!r}, 'wb').write({data!r})"
    assert main(["run", "--output", str(out), "--", sys.executable, "-c", code]) == 0
    assert "ended without closing" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_run_hands_signals_to_the_program(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    code = f"import time; open({str(ready)!r}, 'w'); time.sleep(60)"
    words = ["run", "--output", str(tmp_path / "out"), "--", sys.executable, "-c", code]
    # As it is without the nohup that the tests may run under.
    heeded = f"import signal; signal.signal({number:d}, signal.SIG_DFL)"
    ours_alone = f"{heeded}; import sys; from ai_prof.cli import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", ours_alone, *words]) as ours:
        while not ready.exists():
            time.sleep(0.01)
        ours.send_signal(number)
        assert ours.wait() == 128 + number


def test_env_keeps_a_window_that_has_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AI_PROF_STEADY", "1")
    monkeypatch.setenv("AI_PROF_OUTPUT", "/elsewhere")
    assert main(["env", "--output", str(tmp_path)]) == 0
    script = capsys.readouterr().out + '\necho "$AI_PROF_STEADY|$AI_PROF_OUTPUT"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"1|{tmp_path}"
