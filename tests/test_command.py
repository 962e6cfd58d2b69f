"""The `ai-prof` command itself: whatever becomes of its streams, it ends with its own code and one line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import aiprof_file as af
import pytest

from ai_prof.cli import main
from ai_prof.cli.console import OutputConsole

AI_PROF = [sys.executable, "-c", "import sys; from ai_prof.cli import main; sys.exit(main())"]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    program = af.Program()
    program.device(1, "名")
    program.kernel("内核", 1_000, 6_000, device=1)
    return program.write(tmp_path)


def ai_prof(shell: str, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command under `shell`, which stands for its streams: `"$@" > /dev/full`."""
    words = ["sh", "-c", shell, "sh", *AI_PROF, *map(str, arguments)]
    return subprocess.run(words, env=os.environ | env, capture_output=True, text=True, check=False)


def test_names_that_the_terminal_cannot_show_are_escaped(capture):
    done = ai_prof('"$@"', "summary", "--input", capture, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "\\u540d" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["summary --input {0}", "diff {0} {0}", "export --input {0} --output {1}"])
def test_a_capture_that_takes_its_time_to_read_is_announced(capture, tmp_path, monkeypatch, capsys, verb):
    line = verb.format(capture, tmp_path / "out.json").split()
    assert main(line) == 0
    assert "reading" not in capsys.readouterr().err
    monkeypatch.setattr("ai_prof.cli.reading.LARGE", capture.stat().st_size)
    assert main(line) == 0
    assert f"ai-prof: reading {capture}, 0 MB\n" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--vers", "attach --pid 1 --dura 5", "history export --out x"])
def test_an_option_is_written_out(line, capsys):
    """What a later option would make ambiguous, or another one's, is no word of a script."""
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert "usage: ai-prof" in capsys.readouterr().err


def test_the_version_is_that_of_the_installation():
    done = ai_prof('"$@"', "--version")
    assert done.returncode == 0
    assert done.stdout == f"ai-prof {version('ai-prof')}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_one_line_and_no_fault_of_ours(capture):
    done = ai_prof('"$@" > /dev/full', "summary", "--input", capture)
    assert done.returncode == 4
    assert done.stderr == "ai-prof: the output: No space left on device\n"


def test_a_reader_that_goes_away_is_no_failure(capture):
    done = ai_prof('{ "$@"; echo $? >&2; } | true', "summary", "--input", capture, PYTHONUNBUFFERED="")
    assert done.stderr == "0\n"


def test_a_reader_that_goes_away_too_early_hides_no_verdict(monkeypatch):
    def run(_):
        raise BrokenPipeError

    monkeypatch.setattr("ai_prof.cli.summary.run", run)
    monkeypatch.setattr("ai_prof.cli.discard_output", lambda: None)
    assert main(["summary", "--input", "x"]) == 141


def test_a_current_folder_that_was_removed_is_said_to(tmp_path):
    removed = tmp_path / "removed"
    for verb in (["gate"], ["history"], ["init"], ["run", "true"], ["baseline", "show"]):
        removed.mkdir()
        done = ai_prof(f'cd {removed} && rmdir {removed} && "$@"', *verb)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "ai-prof: the current folder was removed: change to one that is there\n"


def test_a_name_that_is_too_long_is_said_to(tmp_path):
    name = "x" * 5000
    (tmp_path / "pyproject.toml").write_text(f"[tool.ai-prof]\nworkloads = '{name}'\nbaselines = '{name}'\n")
    for line in (["gate"], ["baseline", "show"], ["history", "--history", name]):
        done = ai_prof(f'cd {tmp_path} && "$@"', *line)
        assert done.returncode == 4
        assert done.stderr.endswith("xxx: File name too long\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_leave_the_exit_code(capture, closed):
    assert ai_prof(f'"$@" {closed}', "summary", "--input", capture).returncode == 0
    assert ai_prof(f'"$@" {closed}', "summary", "--input", "/no/such").returncode == 2


@pytest.mark.parametrize("verb", ["gate", "attach", "baseline refresh", "report merge", "history"])
def test_an_unknown_argument_is_answered_with_the_usage_of_its_verb(capsys, verb):
    needed = {"attach": ["--pid", "1"], "baseline refresh": ["--reason", "new"], "report merge": ["d"]}
    with pytest.raises(SystemExit, match="2"):
        main([*verb.split(), *needed.get(verb, []), "--no-such-option"])
    told = capsys.readouterr().err
    assert told.startswith(f"usage: ai-prof {verb} [-h]")
    assert told.endswith(f"ai-prof {verb}: error: unrecognized arguments: --no-such-option\n")
    with pytest.raises(SystemExit, match="2"):
        main(["--no-such-option", *verb.split(), *needed.get(verb, [])])
    assert capsys.readouterr().err.endswith("ai-prof: error: unrecognized arguments: --no-such-option\n")


def test_a_message_stays_one_line_whatever_the_name(tmp_path, capsys):
    assert main(["summary", "--input", str(tmp_path / "a\nb\x1b[31m\udcff")]) == 2
    message = capsys.readouterr().err
    assert "a\\nb\\x1b[31m\\udcff does not exist" in message
    assert message.count("\n") == 1


def test_a_message_is_no_command_of_githubs_whatever_the_name(tmp_path, capsys):
    assert main(["summary", "--input", str(tmp_path / "##[stop-commands]x")]) == 2
    assert "# #[stop-commands]x does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["##[stop-commands]x", "\\##[group]###[error]"])
def test_json_is_no_command_of_githubs_and_means_the_same_whatever_the_name(tmp_path, capsys, name):
    folder = tmp_path / name
    folder.mkdir()
    path = af.Program().write(folder)
    assert main(["summary", "--input", str(path), "--json"]) == 3
    printed = capsys.readouterr().out
    assert "##[" not in printed
    assert json.loads(printed)["source"]["files"] == [str(path)]


CODES = {
    0: [
        "summary --input work",
        "diff work work",
        "export --input work --output out.json",
        "env",
        *("status", "status --json"),
        "init --device opencl",
    ],
    2: [
        "",
        "no-such-verb",
        *(f"summary --input {name}" for name in ("junk", "nowhere")),
        *(f"export --input {name} --output out.json" for name in ("junk", "nowhere")),
        "export --input work --output out.txt",
        *(f"diff work {name}" for name in ("junk", "nowhere")),
        *("run", "run -- /no/such/program", "env --level loud"),
        *("attach", "attach --pid 999999999", "attach --pid 1 --duration 0"),
        *("stop", "stop --pid 999999999"),
        *("gate", "gate --shard 3/2", "gate --device abacus"),
        "accept work iteration_ms --reason wanted",
        *("baseline", "baseline refresh", "baseline refresh --reason new"),
        *("history import nowhere", "history import junk"),
        "bisect work iteration_ms good bad",
        *("report", "report merge nowhere"),
    ],
    3: [
        *("summary --input idle", "export --input idle --output out.json"),
        *("diff work idle", "diff idle work"),
        "run --output out -- true",
        *("baseline show", "baseline log"),
        *("history", "history export"),
        "calibrate",
    ],
    1: ["run --output out -- false"],  # the program's own
}


@pytest.mark.parametrize(("code", "line"), [(code, line) for code, lines in CODES.items() for line in lines])
def test_every_command_ends_with_the_code_that_says_why(tmp_path, monkeypatch, capsys, code, line):
    for name, program in (("work", af.Program()), ("idle", af.Program())):
        program.device(0, "device")
        if name == "work":
            program.kernel("k", 1_000, 6_000)
        (tmp_path / name).mkdir()
        program.write(tmp_path / name)
    (tmp_path / "junk").write_text("neither a capture nor a history")
    monkeypatch.chdir(tmp_path)
    try:
        ended = main(line.split())
    except SystemExit as usage:  # argparse's
        ended = usage.code
    assert ended == code
    assert ended in {0, 1} or "ai-prof" in capsys.readouterr().err


def test_a_library_that_cannot_be_loaded_is_no_regression(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ai_prof.cli.summary", None)
    assert main(["summary", "--input", "x"]) == 70
    assert "fault of ai-prof" in capsys.readouterr().err


@pytest.mark.parametrize("minutes", ["nan", "-1"])
def test_a_budget_is_no_less_than_nothing(tmp_path, monkeypatch, capsys, minutes):
    monkeypatch.chdir(tmp_path)
    assert main(["gate", "--budget-minutes", minutes]) == 2
    assert "--budget-minutes" in capsys.readouterr().err


def test_rich_makes_no_regression_of_a_reader_that_went_away():
    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        OutputConsole(file=Gone()).print("verdict")
