"""Files that are damaged, or no captures at all, through the command's own door."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys

import aiprof_file as af
import pytest

from ai_prof import cli
from ai_prof.errors import EXIT_NOTHING, EXIT_PASS, EXIT_USAGE

KERNELS = 60
MEMORY = 250 << 20  # bytes resident at most, whatever the file
# Runs the command and leaves its peak in KiB. What wait4 tells of a child counts its parent's memory, too.
WATCHED = """
import pathlib, re, sys
from ai_prof.cli import main
try:
    sys.exit(main(sys.argv[2:]))
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    pathlib.Path(sys.argv[1]).write_text(re.search(r"VmHWM:\\s*(\\d+)", status)[1])
"""
GIANT = 3 << 30


def trace(kernels=KERNELS, name="k"):
    """A torch.profiler trace as text."""
    place = {"pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": 100 * i, "dur": 50, **place}
        for i in range(1, kernels + 1)
    ]
    return json.dumps({"traceEvents": events}).encode()


def capture(*, closed=True):
    """A capture of our own as bytes."""
    made = af.Program()
    for _ in range(KERNELS):
        made.launch("k", 10_000)
    return made.data(closed=closed)


def damaged(text, junk):
    """Text with something else in its middle."""
    at = len(text) // 2
    return text[:at] + junk + text[at + len(junk) :]


def database(path, *statements):
    """A SQLite file."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def summary(path, capsys):
    """Exit code, figures, and lines on stderr, each one of ours."""
    code = cli.main(["summary", "--json", "--window", "span", "--input", str(path)])
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert all(line.startswith("ai-prof: ") for line in lines), output.err
    found = json.loads(output.out) if output.out else None
    assert (found is None) == (code == EXIT_USAGE)
    return code, found, lines


READ = {
    "cut.json.gz": (gzip.compress(trace(4000, "k" * 50))[:-900], "was cut"),
    "damaged.json.gz": (gzip.compress(trace(60_000))[:-8] + bytes(8), "compressed data is damaged"),
    "broken.json": (damaged(trace(), b"\0\0}}]]"), "no JSON"),
    "names.json": (trace().replace(b'"k"', b'"caf\xe9\xff"'), "not UTF-8"),
    "huge_times.json": (trace().replace(b'"ts": 500,', b'"ts": 1e300,'), "times that cannot be"),
    "negative.json": (trace().replace(b'"dur": 50', b'"dur": -50', 3), "times that cannot be"),
    "open.aiprof": (capture(closed=False), "without closing"),
    "cut.aiprof": (capture()[:-100], "was cut"),
    "damaged.aiprof": (damaged(capture(), b"\xff\xff"), "is damaged"),
    "zeros.aiprof": (capture(closed=False) + bytes(1 << 20), "no block begins at byte"),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_whole_of_a_damaged_file_is_told(tmp_path, capsys, name):
    content, said = READ[name]
    path = tmp_path / name
    path.write_bytes(content)
    code, found, lines = summary(path, capsys)
    assert code == EXIT_PASS
    assert found["devices"][0]["kernel_count"] > KERNELS // 3
    assert any(said in line for line in lines), lines


REFUSED = {
    "empty.json": b"",
    "page.json": b"<!DOCTYPE html><html><body>404</body></html>",
    "page.json.gz": gzip.compress(b"<!DOCTYPE html>"),
    "page.sqlite": b"<!DOCTYPE html>",
    "text.aiprof": b"AIPROF is not what this is",
    "damaged.sqlite": b"SQLite format 3\0" + b"\xff" * 5000,
    "version.aiprof": af.Capture(major=9).data(),
    "other.json": b'{"a": 1}',
    "nothing.json.gz": b"\x1f\x8b",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_capture_is_refused_in_one_line(tmp_path, capsys, name):
    path = tmp_path / name
    path.write_bytes(REFUSED[name])
    code, _, lines = summary(path, capsys)
    assert code == EXIT_USAGE
    assert len(lines) == 1
    assert str(path) in lines[0]


def test_a_database_of_something_else_is_refused_and_one_without_work_is_told(tmp_path, capsys):
    path = tmp_path / "a.sqlite"
    database(path, "CREATE TABLE users (id INTEGER)")
    code, _, lines = summary(path, capsys)
    assert (code, len(lines)) == (EXIT_USAGE, 1)
    assert "no export of Nsight Systems" in lines[0]
    database(path, "CREATE TABLE StringIds (id INTEGER, value TEXT)")
    assert summary(path, capsys)[0] == EXIT_NOTHING


def test_what_is_no_file_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "link.json").symlink_to("link.json")
    for name in ("folder.json", "fifo.json", "link.json", "absent.json"):
        code, _, lines = summary(tmp_path / name, capsys)
        assert (code, len(lines)) == (EXIT_USAGE, 1)


@pytest.mark.parametrize("suffix", [b".json", b".aiprof"])
def test_a_name_that_is_not_utf8_is_read_and_written(tmp_path, capsys, suffix):
    path = os.fsdecode(bytes(tmp_path) + b"/caf\xe9" + suffix)
    with open(path, "wb") as file:  # noqa: PTH123 - Path takes it too, and says less
        file.write(trace() if suffix == b".json" else capture())
    code, found, _ = summary(path, capsys)
    assert code == EXIT_PASS
    assert found["source"]["files"][0].endswith("caf\\udce9" + suffix.decode())
    assert cli.main(["diff", "--json", path, path]) == EXIT_PASS
    assert json.loads(capsys.readouterr().out)
    for kind, name in (("timeline", b"/\xe9.json"), ("csv", b"/\xe9csv"), ("parquet", b"/\xe9parquet")):
        if kind == "parquet":
            pytest.importorskip("pyarrow")
        target = os.fsdecode(bytes(tmp_path) + name)
        assert cli.main(["export", "--input", path, "--format", kind, "--output", target]) == EXIT_PASS
        assert os.path.exists(target)  # noqa: PTH110


def sparse(path, begin):
    """A file of 3 GB that takes no room."""
    path.write_bytes(begin)
    os.truncate(path, GIANT)


def bomb(path, begin, repeated, times):
    """A small gzip file of a text without end."""
    with gzip.open(path, "wb", 6) as file:
        file.write(begin)
        for _ in range(times):
            file.write(repeated)


GIANTS = {
    "sparse.json": lambda path: sparse(path, trace()[:-2] + b","),
    "nothing.json": lambda path: sparse(path, b"{"),
    "sparse.aiprof": lambda path: sparse(path, capture(closed=False)),
    "zeros": lambda path: sparse(path, b""),
    "spaces.json.gz": lambda path: bomb(path, trace()[:-2] + b",", b" " * (1 << 20), 300),
    "nested.json.gz": lambda path: bomb(path, b'{"traceEvents": [', b'[{"a":' * 100_000, 500),
    "string.json.gz": lambda path: bomb(path, b'{"traceEvents": [{"name": "', b"a" * (1 << 20), 300),
    "unused.json.gz": lambda path: bomb(
        path,
        b'{"traceEvents": [',
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1},\n' * 10_000,
        100,
    ),
}


@pytest.mark.parametrize("name", GIANTS)
def test_a_giant_file_takes_little_memory(tmp_path, name):
    path = tmp_path / name
    GIANTS[name](path)
    peak = tmp_path / "peak"
    command = [sys.executable, "-c", WATCHED, str(peak), "summary", "--json", "--input", str(path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = child.stderr.splitlines()
    assert child.returncode in {EXIT_PASS, EXIT_NOTHING, EXIT_USAGE}, lines
    assert lines
    assert all(line.startswith("ai-prof: ") for line in lines)
    assert int(peak.read_text()) << 10 < MEMORY
