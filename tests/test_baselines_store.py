from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
from gate_runs import Machine

from ai_prof.baselines import accepted, calibrated, store
from ai_prof.baselines.machine_key import MachineFacts, machine_key
from ai_prof.baselines.store import Baseline, Origin
from ai_prof.errors import BaselineError, NothingToCompareError

KEY = "cuda-nvidia-h200-x1"

ANCHOR = (
    b'"anchor": {"when": "", "commit": null, "runs": [], "accepted": [{"metric": "nope", "from": 1, "to": 2, '
    b'"who": "", "why": "", "when": ""}]}'
)


def baseline(seed=0, sessions=2, **fields):
    values = {
        "workload": "train",
        "machine_key": KEY,
        "backend": "cuda",
        "origin": Origin(who="ada", why="first", when="2026-01-01T00:00:00Z", commit="abc"),
        "runs": Machine(seed).baseline(sessions),
    }
    return Baseline(**{**values, **fields})


def test_the_remedy_for_a_damaged_file_can_be_pasted(tmp_path):
    path = store.save(tmp_path / "my project", baseline())
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BaselineError, match=re.escape(f"`git checkout -- '{path}'`")):
        store.load(tmp_path / "my project", KEY, "train")


@pytest.mark.parametrize(
    "of", [lambda path: path, accepted.path_of, lambda path: path.with_name(calibrated.FILE)]
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_at(tmp_path, of):
    one = baseline()
    path = store.save(tmp_path, one)
    of(path).unlink(missing_ok=True)
    os.mkfifo(of(path))
    with pytest.raises(BaselineError, match="it is no file"):
        (store.load(tmp_path, KEY, "train"), accepted.load(path, one), calibrated.latest([path.parent]))


def test_what_is_saved_is_loaded(tmp_path):
    one = baseline()
    path = store.save(tmp_path, one)
    assert path == tmp_path / KEY / "train.json"
    assert store.load(tmp_path, KEY, "train") == one
    assert one.sessions == 2
    assert [entry.name for entry in path.parent.iterdir()] == ["train.json"]


def test_one_run_a_line_sorted_and_stable():
    one = baseline()
    shuffled = msgspec.structs.replace(one, runs=one.runs[::-1])
    data = store.encode(one)
    assert store.encode(shuffled) == data
    assert store.digest(shuffled) == store.digest(one)
    lines = data.decode().splitlines()
    runs = [line for line in lines if line.startswith('{"workload"')]
    assert len(runs) == len(one.runs)
    # One more session adds its lines and touches one other: the comma before them.
    more = store.encode(msgspec.structs.replace(one, runs=[*one.runs, *Machine(9).session("s9")])).decode()
    assert len(set(more.splitlines()) - set(lines)) == 4


def test_no_baseline_is_none(tmp_path):
    assert store.load(tmp_path, KEY, "train") is None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[: len(data) // 2], "is cut short"),
        (lambda _: b"", "is cut short"),
        (lambda data: data.replace(b'"workload":', b'"workload"', 1), "is not valid JSON"),
        (lambda _: b"\xff\xfe{}", "is not valid JSON"),
        (lambda _: b"[]", "is not a baseline"),
        (lambda _: b"{}", "is not a baseline"),
        (lambda data: data.replace(b"baseline/2", b"baseline/3"), "has schema version 3"),
        (lambda data: data.replace(b"baseline/2", b"baseline/" + b"2" * 5000), "is not a baseline"),
        (lambda data: data.replace(b"baseline/2", "baseline/²".encode()), "is not a baseline"),
        (lambda _: b'{"runs":' * 100_000, "is cut short"),
        (lambda data: data.replace(b'"order":0', b'"order":"x"'), "is damaged"),
        (lambda data: data.replace(b'"order":0', b'"order":0,"environment":{"foreign_cores":null}'), "cores"),
        (lambda data: data.replace(b'"iteration_ms":', b'"iteration_ms":1e300,"x":'), "is damaged"),
        (lambda data: data.replace(b'"anchor": null', ANCHOR), "unknown metric 'nope'"),
        (lambda data: data.replace(b"T00:00:00+00:00", b"T00:00:00"), "is damaged"),
        (lambda data: data.replace(b"2026-01-01T00:00:00+00:00", b""), "is damaged"),
        (lambda data: re.sub(rb'"runs": \[.*\]', b'"runs": []', data, flags=re.DOTALL), "holds no runs"),
        (lambda data: re.sub(rb'(\{"workload".*\},\n)', rb"\1\1", data, count=1), "holds a run twice"),
        (lambda data: data.replace(b'"workload": "train"', b'"workload": "other"'), "holds the baseline of"),
    ],
)
def test_what_cannot_be_read_says_so_in_one_line_with_a_remedy(tmp_path, spoil, said):
    path = store.save(tmp_path, baseline())
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BaselineError, match=said) as caught:
        store.load(tmp_path, KEY, "train")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 2


def test_cut_at_any_line_is_an_error(tmp_path):
    path = store.save(tmp_path, baseline())
    data = path.read_bytes()
    for end in [i for i, byte in enumerate(data) if byte == ord("\n")][:-2]:
        path.write_bytes(data[:end])
        with pytest.raises(BaselineError):
            store.load(tmp_path, KEY, "train")


def test_another_machine_does_not_compare(tmp_path):
    store.save(tmp_path, baseline())
    (tmp_path / "other").mkdir()
    (tmp_path / KEY / "train.json").rename(tmp_path / "other" / "train.json")
    with pytest.raises(NothingToCompareError, match="don't compare") as caught:
        store.load(tmp_path, "other", "train")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = store.save(tmp_path, baseline())
    before = path.read_bytes()

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(BaselineError, match="No space left"):
        store.save(tmp_path, baseline(seed=5))
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["train.json"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / KEY).write_text("a file is in the way")
    with pytest.raises(BaselineError, match="cannot be written"):
        store.save(tmp_path, baseline())
    with pytest.raises(BaselineError, match="cannot be read"):
        store.load(tmp_path, KEY, "train")


H200 = MachineFacts(
    backend="cuda",
    model="NVIDIA H200",
    count=1,
    memory_bytes=150_754_820_096,
    driver="570.124.06",
    cuda="12.8",
)


def test_machine_key_is_a_readable_folder_name():
    assert machine_key(H200) == "cuda-nvidia-h200-x1-140gb-driver570-cuda12"
    cpu = MachineFacts(backend="opencl", model="Intel(R) Xeon(R) CPU @ 2.20GHz", count=2, driver="3.1")
    assert machine_key(cpu) == "opencl-intel-xeon-cpu-2.20ghz-x2-pocl3.1"
    assert Path(machine_key(cpu)).name == machine_key(cpu)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"driver": "570.133.20"}, True),
        ({"cuda": "12.9"}, True),
        ({"memory_bytes": 150_754_820_096 - 2**20}, True),
        ({"driver": "580.1"}, False),
        ({"cuda": "13.0"}, False),
        ({"count": 2}, False),
        ({"mig": "3g.71gb"}, False),
        ({"model": "NVIDIA H100"}, False),
        ({"memory_bytes": 80 * 2**30}, False),
    ],
)
def test_machine_key_holds_stable_facts_only(changes, same):
    assert (machine_key(msgspec.structs.replace(H200, **changes)) == machine_key(H200)) is same
