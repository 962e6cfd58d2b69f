"""A baseline is written whole or not at all, wherever its writer is killed, and two writers lose nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest
from gate_profiles import decode
from gate_runs import Machine
from test_baselines_refresh import facts, verdict
from test_baselines_store import KEY, baseline

from ai_prof.baselines import store
from ai_prof.baselines.files import one_writer, write_file
from ai_prof.baselines.refresh import refreshed
from ai_prof.baselines.store import Origin
from ai_prof.errors import BaselineError
from ai_prof.gate.model import Reason

TESTS = Path(__file__).parent
NOW = Origin(who="ada", why="again", when="2026-02-01T00:00:00+00:00", commit="def")

# Every call that a write makes on the file system; the writer is killed before and after each.
CALLS = ("mkdir", "mkstemp", "fdopen", "fchmod", "fsync", "replace", "unlink")
KILLED = """
    import os, pathlib, signal, sys, tempfile
    sys.path.append({tests!r})
    from test_baselines_atomic import stored
    from ai_prof.baselines.files import one_writer
    from ai_prof.baselines import store
    name, when, root = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    owner = next(o for o in (os, tempfile, pathlib.Path) if hasattr(o, name) and (o is not os or name not in
        {{"mkdir", "unlink"}}))
    call = getattr(owner, name)
    def fatal(*args, **options):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        call(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    new, profiles = stored(7)
    folder = store.path_of(root, new.machine_key, new.workload).parent
    with one_writer(folder):
        setattr(owner, name, fatal)
        store.save(root, new, profiles)
"""


def stored(seed: int):
    """A baseline whose runs have profiles."""
    program = decode(seed)
    one = baseline(seed)
    profiles = program.runs(len(one.runs))
    runs = [msgspec.structs.replace(r, profile=p.digest()) for r, p in zip(one.runs, profiles, strict=True)]
    return msgspec.structs.replace(one, runs=runs), {p.digest(): p for p in profiles}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_a_writer_killed_at_any_call_leaves_one_of_both_whole(tmp_path, call, when):
    old, profiles = stored(1)
    new, _ = stored(7)
    path = store.save(tmp_path, old, profiles)
    code = textwrap.dedent(KILLED.format(tests=str(TESTS)))
    done = subprocess.run([sys.executable, "-c", code, call, when, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    found = store.load(tmp_path, KEY, "train")
    expected = new if [r.metrics for r in found.runs] == [r.metrics for r in new.runs] else old
    assert [r.metrics for r in found.runs] == [r.metrics for r in expected.runs]
    assert set(store.load_profiles(path, found)) == {run.profile for run in expected.runs}
    # The next writer removes what was left, and nothing of it counts as a baseline.
    with one_writer(path.parent):
        store.save(tmp_path, new, stored(7)[1])
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []
    assert len(list(path.parent.glob("*.npz"))) == 1


def test_a_reader_whom_a_refresh_overtakes_reads_the_new_one(tmp_path, monkeypatch):
    """Between its two reads the baseline is replaced, and the profiles that it named are gone."""
    old, profiles = stored(1)
    new, others = stored(7)
    store.save(tmp_path, old, profiles)
    load, refreshes = store.load, iter([(new, others)])

    def overtaken(*args):
        found = load(*args)
        for one in refreshes:
            store.save(tmp_path, *one)
        return found

    monkeypatch.setattr(store, "load", overtaken)
    found, its_own = store.load_with_profiles(tmp_path, KEY, "train")
    assert [run.metrics for run in found.runs] == [run.metrics for run in new.runs]
    assert set(its_own) == {run.profile for run in new.runs}


def test_profiles_that_are_gone_are_said(tmp_path):
    one, profiles = stored(1)
    path = store.save(tmp_path, one, profiles)
    for file in path.parent.glob("*.npz"):
        file.unlink()
    with pytest.raises(BaselineError, match="restore both from git"):
        store.load_with_profiles(tmp_path, KEY, "train")


def test_two_writers_take_turns(tmp_path):
    """Each reads, adds one and writes: none is lost, however they meet."""
    path = tmp_path / "count"
    path.write_text("0")

    def add() -> None:
        for _ in range(50):
            with one_writer(tmp_path):
                write_file(path, str(int(path.read_text()) + 1).encode())

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "200"


@pytest.mark.parametrize("name", ["*", "tr[ai]n", "?rain"])
def test_the_profiles_of_another_workload_stay_whatever_the_name(tmp_path, name):
    one, profiles = stored(1)
    path = store.save(tmp_path, one, profiles)
    for seed in (2, 3):
        other, others = stored(seed)
        store.save(tmp_path, msgspec.structs.replace(other, workload=name), others)
    assert store.load_profiles(path, store.load(tmp_path, KEY, "train"))
    assert len(list(path.parent.glob("*.profile.npz"))) == 2  # the older ones of the other are gone


def test_a_writer_that_is_killed_lets_the_next_one_in(tmp_path):
    code = (
        "import pathlib, sys, time\nfrom ai_prof.baselines.files import one_writer\n"
        "with one_writer(pathlib.Path(sys.argv[1])):\n    print(flush=True)\n    time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    with holder:
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGKILL)
    with one_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_said(tmp_path, monkeypatch, capsys):
    def refuse(*_args):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with one_writer(tmp_path):
        write_file(tmp_path / "file", b"kept")
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert "cannot be locked" in capsys.readouterr().err


def test_a_refresh_that_another_one_overtook_adds_to_it():
    mine = facts(verdict=verdict(Reason.PASS))
    theirs = refreshed(facts(runs=Machine(8).session("theirs")), mine.old, NOW)
    both = refreshed(mine, theirs, NOW)
    assert {run.session for run in both.runs} == {"s0", "s1", "s2", "theirs", "new"}
    assert [entry.runs for entry in both.log] == [12, 15]


def test_a_refresh_whose_baseline_another_one_replaced_is_refused():
    mine = facts(verdict=verdict(Reason.PASS))
    theirs = refreshed(facts(verdict=verdict(Reason.IMPROVED), runs=Machine(8).session("t")), mine.old, NOW)
    with pytest.raises(BaselineError, match="was replaced while this one was measured"):
        refreshed(mine, theirs, NOW)
    # Also where it was replaced before the new runs were made: both waited for the device.
    late = msgspec.structs.replace(mine, old=theirs)
    with pytest.raises(BaselineError, match="was replaced"):
        refreshed(late, theirs, NOW)
    with pytest.raises(BaselineError, match="was replaced"):
        refreshed(facts(old=None, verdict=None), mine.old, NOW)


def test_a_baseline_of_the_first_version_is_read_and_gets_its_log(tmp_path):
    path = store.save(tmp_path, baseline())
    text = json.loads(path.read_text())
    del text["log"]
    path.write_text(json.dumps({**text, "schema": "ai-prof/baseline/1", "anchor": None}))
    found = store.load(tmp_path, KEY, "train")
    assert (found.schema, found.runs) == (store.SCHEMA, baseline().runs)
    (entry,) = found.log
    assert (entry.who, entry.why, entry.sessions, entry.runs) == ("ada", "first", 2, 6)
    assert refreshed(facts(old=found, verdict=None), found, NOW).anchor.when == found.origin.when
    path.write_text(json.dumps({**text, "schema": "ai-prof/baseline/0"}))
    with pytest.raises(BaselineError, match="schema version 0"):
        store.load(tmp_path, KEY, "train")
