"""`workload.toml`: what is read, and what each mistake says."""

from __future__ import annotations

import os

import pytest

from ai_prof.errors import EXIT_USAGE, WorkloadError
from ai_prof.gate.metrics import Floor
from ai_prof.runs.workloads import check_regress, find, load, select

GOOD = """
schema = "ai-prof/workload/1"
command = ["python", "main.py", "--size", "2"]
device = "opencl"
gpus = 0
requires = ["pyopencl"]
timeout_s = 9
faults = ["sync", "slow"]
structure = ["kernels", "syncs"]
env = {POCL_MAX_PTHREAD_COUNT = "1"}
policy = {gap = "warn"}
[floors.iteration_ms]
relative = 0.05
absolute = 0.1
"""


def write(root, name, text=GOOD):
    folder = root / name
    folder.mkdir()
    (folder / "workload.toml").write_text(text)
    return folder / "workload.toml"


def test_all_that_is_declared_is_read(tmp_path):
    workload = load(write(tmp_path, "one"))
    assert (workload.name, workload.folder) == ("one", tmp_path / "one")
    assert workload.command == ("python", "main.py", "--size", "2")
    assert (workload.device, workload.gpus, workload.timeout_s) == ("opencl", 0, 9)
    assert workload.env == {"POCL_MAX_PTHREAD_COUNT": "1"}
    assert workload.rules.promised == ("kernels", "syncs")
    assert workload.rules.floors == {"iteration_ms": Floor(relative=0.05, absolute=0.1)}
    assert workload.rules.policy_of("gap") == "warn"


def test_a_fault_reaches_only_who_knows_it(tmp_path):
    workload = load(write(tmp_path, "one"))
    assert workload.regress("sync") == "sync"
    assert workload.regress("sync=2.5") == "sync=2.5"
    assert workload.regress("serial") is None
    assert workload.regress(None) is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            'schema = "ai-prof/workload/1"',
            'schema = "ai-prof/workload/2"',
            "it takes ai-prof/workload/1",
        ),
        ('schema = "ai-prof/workload/1"', "", "schema"),
        ('device = "opencl"', 'device = "tpu"', "`$.device`: it takes cuda or opencl"),
        ("timeout_s = 9", "timeout_s = -1", "timeout_s must be above 0"),
        ("timeout_s = 9", "timeout_s = nan", "timeout_s must be above 0"),
        ("timeout_s = 9", 'timeout_s = "9"', "timeout_s"),
        ("timeout_s = 9", "timeouts = 9", "unknown field `timeouts`; there are: schema, command, "),
        ('command = ["python", "main.py", "--size", "2"]', "command = []", "command is empty"),
        ("gpus = 0", "gpus = -1", "gpus must be"),
        ('"kernels", "syncs"', '"kernels", "sinks"', "unknown counts sinks"),
        ("[floors.iteration_ms]", "[floors.latency]", "unknown metrics latency"),
        ("[floors.iteration_ms]", "[floors.kernels]", "kernels takes no floor"),
        ('gap = "warn"', 'gap = "shout"', "`$.policy.gap`: it takes fail or warn or ignore"),
        ("relative = 0.05", 'relative = "5 %"', "`$.floors.iteration_ms.relative`"),
        ('COUNT = "1"', "COUNT = 1", "`$.env.POCL_MAX_PTHREAD_COUNT`"),
        ('command = ["python",', "command = [1,", "`$.command[0]`"),
        ("gpus = 0", "gpus = = 0", "not valid TOML"),
        ("gpus = 0", f"gpus = {'[' * 20_000}", "not valid TOML"),
        ("relative = 0.05", "relative = nan", "floors of iteration_ms"),
        ("relative = 0.05", "rel = 0.05", "`rel` - at `$.floors.iteration_ms`; there are: relative"),
        ('["pyopencl"]', '[""]', "no importable module"),
        ('"slow"', '"a=b"', "without '='"),
        ("POCL_MAX_PTHREAD_COUNT =", '"A=B" =', "no variable"),
        ("POCL_MAX_PTHREAD_COUNT", "AI_PROF_LEVEL", "AI_PROF_LEVEL"),
        ('"main.py"', '"main\\u0000.py"', "NUL"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(tmp_path, old, new, says):
    assert old in GOOD
    path = write(tmp_path, "one", GOOD.replace(old, new))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    message = str(caught.value)
    assert says in message
    assert str(path) in message
    assert "\n" not in message
    assert caught.value.exit_code == EXIT_USAGE


def test_a_file_that_is_not_text(tmp_path):
    path = write(tmp_path, "one")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match=r"cannot be read|not valid"):
        load(path)


def test_a_pipe_in_the_place_of_the_file_is_not_waited_at(tmp_path):
    path = write(tmp_path, "one")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(WorkloadError, match=r"cannot be read .*it is no file"):
        load(path)


@pytest.mark.parametrize("name", ["two\nlines", "\udcff", "train.accepted", "machine.calibration", "\x1b[2J"])
def test_a_folder_whose_name_its_files_cannot_take(tmp_path, name):
    write(tmp_path, name)
    with pytest.raises(WorkloadError, match="rename the folder to printable UTF-8 that does not end with"):
        find(tmp_path)


def test_find_and_select(tmp_path):
    for name in ("b", "a"):
        write(tmp_path, name)
    (tmp_path / "not_a_workload").mkdir()
    every = find(tmp_path)
    assert [w.name for w in every] == ["a", "b"]
    assert select(every, []) == every
    assert [w.name for w in select(every, ["b", "b"])] == ["b"]
    with pytest.raises(WorkloadError, match=r"no workload named c; there are: a, b"):
        select(every, ["a", "c"])


def test_no_workloads(tmp_path):
    with pytest.raises(WorkloadError, match="no workloads in"):
        find(tmp_path / "missing")


def test_check_regress(tmp_path):
    write(tmp_path, "one")
    every = find(tmp_path)
    check_regress(every, None)
    check_regress(every, "slow")
    check_regress(every, "slow=1.5")
    with pytest.raises(WorkloadError, match=r"no workload knows the fault 'serial'; there are: slow, sync"):
        check_regress(every, "serial")
    for strength in ("", "x", "0", "-1", "nan", "inf"):
        with pytest.raises(WorkloadError, match="number above 0"):
            check_regress(every, f"slow={strength}")
