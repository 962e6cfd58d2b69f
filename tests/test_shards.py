"""Shards of one build: merged they say what the whole build says, and what is missing is no pass."""

from __future__ import annotations

import json
import os
import shutil

import msgspec
import numpy as np
import pytest
import verdicts
from fake_project import enter
from gate_runs import Machine, counts_alone
from hypothesis import given
from hypothesis import strategies as st

from ai_prof.cli import main
from ai_prof.collect.autostart import library_path
from ai_prof.errors import EnvironmentInvalidError, UsageError
from ai_prof.gate import decide, screen
from ai_prof.gate.decide import Fresh
from ai_prof.gate.measured import Measured, Shard, conclude
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import BuildVerdict, GapChange, Reason, Why, WorkloadVerdict
from ai_prof.report import shards
from ai_prof.timeline.profile import Profile

PRIORS = screen.table_priors("cuda")
SLOWER = {"a": 1.0, "b": 1.05, "c": 1.0, "d": 1.12, "e": 1.0}


def measured(names, run_id="20261129T000000Z-1") -> Measured:
    """Workloads of which b and d got slower, measured with noise that hangs on their names alone."""
    verdicts, fresh = [], {}
    for name in sorted(names):
        machine = Machine(ord(name))
        baseline = machine.baseline(10, workload=name)
        runs = machine.session("now", slower=SLOWER[name], workload=name)
        verdict = decide.screen_workload(name, baseline, runs, rules=Rules(), priors=PRIORS)
        verdicts.append(verdict)
        if verdict.flagged:
            base, head = machine.pairs(7, slower=SLOWER[name])
            fresh[name] = Fresh(base=base, head=head)
    build = BuildVerdict(
        run_id=run_id,
        started="2026-11-29T00:00:00+00:00",
        finished="2026-11-29T00:10:00+00:00",
        exit_code=0,
        summary="",
        device="cuda",
        machine_key="key",
        commit="abc",
        workloads=verdicts,
        notes=["a note"],
    )
    return Measured(build=build, fresh=fresh, rules={name: Rules() for name in names}, priors=PRIORS)


@given(st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1), st.integers(1, 6))
def test_every_workload_is_in_one_share(names, count):
    shares = [Shard(index, count).share(names) for index in range(1, count + 1)]
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "1/0", "a/b", "-1/3", "1/3/3"])
def test_a_shard_is_i_of_n(text):
    with pytest.raises(UsageError, match="I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_merged_shards_say_what_the_whole_build_says(tmp_path, count):
    whole = conclude([measured(SLOWER)], {})
    assert whole.exit_code == 1
    assert {w.workload for w in whole.workloads if w.reason is Reason.REGRESSED} == {"b", "d"}
    for index in range(1, count + 1):
        shard = Shard(index, count)
        part = measured(shard.share(SLOWER))
        shards.save(tmp_path / f"shard-{index}", shard, part, {})
    merged = conclude(*shards.load([tmp_path]))
    assert msgspec.json.encode(merged) == msgspec.json.encode(whole)


def test_holms_correction_runs_over_all_shards():
    alone = {w.workload: w for w in conclude([measured("b")], {}).workloads}
    merged = {w.workload: w for w in conclude([measured("b"), measured("d")], {}).workloads}
    smallest = {
        name: min(cell.p_adjusted for cell in verdict.cells if cell.reason is Reason.REGRESSED)
        for name, verdict in {"alone": alone["b"], "merged": merged["b"], "other": merged["d"]}.items()
    }
    assert max(smallest["merged"], smallest["other"]) == pytest.approx(2 * smallest["alone"])


def test_profiles_come_with_the_shards(tmp_path):
    profile = Profile(("f", "g"), np.zeros(2, np.int8), np.zeros(2, np.int8), np.ones((5, 2)))
    profiles = {profile.digest(): profile}
    shards.save(tmp_path, Shard(1, 1), measured("a"), profiles)
    _, read = shards.load([tmp_path])
    assert read.keys() == profiles.keys()


def test_a_missing_shard_is_no_pass(tmp_path):
    for index in (1, 3):
        shards.save(tmp_path / str(index), Shard(index, 4), measured("a"), {})
    with pytest.raises(EnvironmentInvalidError, match="shard 2, 4"):
        shards.load([tmp_path])


def test_what_is_no_evidence_of_one_build_is_refused(tmp_path):
    with pytest.raises(UsageError, match="name what"):
        shards.load([tmp_path])
    shards.save(tmp_path / "x", Shard(1, 2), measured("a"), {})
    shards.save(tmp_path / "y", Shard(1, 2), measured("b"), {})
    with pytest.raises(UsageError, match="twice"):
        shards.load([tmp_path])
    shards.save(tmp_path / "y", Shard(2, 3), measured("b"), {})
    with pytest.raises(UsageError, match="shards of 2 and 3"):
        shards.load([tmp_path])
    (tmp_path / "y" / shards.FILE).write_text('{"schema": "ai-prof/shard/2"}')
    with pytest.raises(UsageError, match="measure it again"):
        shards.load([tmp_path])


DAMAGES = {
    "deep": '{"a":' * 100_000,
    "not text": "\xff\xfe",
    "count": ('"index":1,"count":1', '"index":1,"count":1000000000000'),
    "index": ('"index":1,"count":1', '"index":0,"count":1'),
    "alpha": ('"alpha":0.01', '"alpha":0'),
    "cores": ('"machine":{}', '"machine":{"cores":"many"}'),
    "driver": ('"machine":{}', '"machine":{"driver":"570"}'),
    "gpus": ('"machine":{}', '"machine":{"gpus":["H200"]}'),
    "nested": ('"machine":{}', '"machine":{"a":' + "[" * 300 + "]" * 300 + "}"),
    "long": ('"machine":{}', '"machine":{"a":' + "9" * 5000 + "}"),
    "foreign_cores": ('"order":0', '"order":0,"environment":{"foreign_cores":null}'),
    "throttle": ('"order":0', '"order":0,"environment":{"throttle_reasons":"all"}'),
    "slowdowns": ('"order":0', '"order":0,"environment":{"slowdowns":[1]}'),
    "capture": ('"order":0', '"order":0,"capture":"a\\u0000b"'),
    "iteration": ('"order":0', '"order":0,"iteration_ms":[1e300]'),
    "negative": ('"order":0', '"order":0,"gap_causes_ms":{"data":-1}'),
    "kernels": ('"order":0', '"order":0,"kernels":{"k":1' + "0" * 400 + "}"),
    "metric": ('"metric":"iteration_ms"', '"metric":"nope"'),
    "host_factor": ('"reason":"pass"', '"reason":"pass","host_factor":0'),
    "baseline": ('"baseline":{}', '"baseline":{"sessions":[1]}'),
    "calibration": ('"calibration":null', '"calibration":{"when":"soon","draws":1,"failed":0,"bound":1}'),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_evidence_that_is_damaged_is_refused_in_one_line(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    path = shards.save(tmp_path / "in", Shard(1, 1), measured("a"), {})
    damage = DAMAGES[name]
    text = path.read_text()
    if isinstance(damage, tuple):
        assert damage[0] in text
        damage = text.replace(*damage)
    path.write_text(damage, encoding="latin-1")
    assert main(["report", "merge", "in"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ai-prof: {path}: ")
    assert not list(tmp_path.rglob("index.html"))


def lanes_of(explained, **changes):
    """The same with its first lane changed."""
    first, *rest = explained.before.lanes
    changed = [{**msgspec.to_builtins(first), **changes}, *map(msgspec.to_builtins, rest)]
    return {
        **msgspec.to_builtins(explained),
        "before": {**msgspec.to_builtins(explained.before), "lanes": changed},
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": [], "end": [], "name": [], "count": [], "ns": []}, "no marks"),
        ({"start": [1]}, "different lengths"),
        ({"kind": "lane"}, "no kind"),
        ({"kind": "gap"}, "no cause"),
        ({"name": [999] * 61}, "no name"),
    ],
)
def test_an_iteration_that_cannot_be_drawn_is_refused(changes, said):
    sample = verdicts.explained()
    assert msgspec.convert(msgspec.to_builtins(sample), Why) == sample
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(lanes_of(sample, **changes), Why)


@pytest.mark.parametrize(
    ("count", "us", "said"),
    [((1, 1), (0, 0), "no time"), ((0, 1), (5, 5), "no gaps"), ((1, 1), (-1, 5), ">= 0")],
)
def test_a_gap_that_is_none_is_refused(count, us, said):
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert({"before": "a", "after": "b", "count": count, "us": us}, GapChange)


def packed(**changes):
    kind, values = np.zeros(2, np.int8), np.ones((5, 2), np.float32)
    for place, value in changes.items():
        values[int(place[1:]), 1] = value
    return Profile(("f", "g"), kind, kind, values)


@pytest.mark.parametrize(
    "changes", [{"r0": np.inf}, {"r1": -np.inf}, {"r2": 100}, {"r3": np.nan}, {"r4": -1}]
)
def test_profiles_with_times_that_none_can_be_are_refused(tmp_path, changes):
    profile = packed(**changes)
    shards.save(tmp_path, Shard(1, 1), measured("a"), {profile.digest(): profile})
    with pytest.raises(UsageError, match="times that none can be"):
        shards.load([tmp_path])


def test_damaged_profiles_are_refused(tmp_path):
    profile = packed(r0=np.nan)  # no submission of its own
    shards.save(tmp_path, Shard(1, 1), measured("a"), {profile.digest(): profile})
    whole = (tmp_path / shards.PROFILES).read_bytes()
    refused = 0
    for place in range(len(whole)):
        (tmp_path / shards.PROFILES).write_bytes(
            whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        )
        try:
            shards.load([tmp_path])
        except UsageError:
            refused += 1
    assert refused > len(whole) / 2  # zip does not look at all of its bytes


def test_parts_of_different_builds_are_not_one():
    one, other = measured("a"), measured("b")
    other.build.commit = "def"
    with pytest.raises(UsageError, match="commit is abc and def"):
        conclude([one, other], {})
    with pytest.raises(UsageError, match="two shards measured a"):
        conclude([one, one], {})
    with pytest.raises(UsageError, match="settings or baselines"):
        conclude([one, msgspec.structs.replace(measured("b"), fail_on=(1,))], {})


def test_the_command_writes_one_report_and_owns_the_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shards.save(tmp_path / "in" / "1", Shard(1, 2), measured("ab"), {})
    shards.save(tmp_path / "in" / "2", Shard(2, 2), measured("cde"), {})
    assert main(["report", "merge", "in"]) == 1
    assert "regressed" in capsys.readouterr().out
    (folder,) = (tmp_path / "reports").glob("2*")
    report = json.loads((folder / "report.json").read_text())
    assert report["exit_code"] == 1
    assert [w["workload"] for w in report["workloads"][:2]] == ["d", "b"]
    assert (folder / "index.html").stat().st_size > 1000
    assert main(["report", "merge", "nowhere"]) == 2
    assert main(["report", "merge", "in"]) == 1
    capsys.readouterr()
    assert main(["history", "export"]) == 0
    points = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {point["workload"] for point in points} == set(SLOWER)
    assert {point["run_id"] for point in points} == {folder.name}
    assert len(points) == len({(point["workload"], point["metric"]) for point in points})


def test_shards_without_work_are_a_build_without_comparison():
    part = measured("")
    part.build.workloads = [WorkloadVerdict(workload="x", reason=Reason.SKIPPED, why="no such module")]
    assert conclude([part, measured("")], {}).exit_code == 3


def test_a_shard_with_record_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["gate", "--shard", "1/2", "--record"]) == 2
    assert "--record" in capsys.readouterr().err
    assert main(["gate", "--shard", "3/2"]) == 2


def test_shards_of_a_real_gate_merge_to_its_verdict(tmp_path, monkeypatch):
    """Two workloads on PoCL, one of them changed after its baseline: the shards exit 0, the merge with 1."""
    pytest.importorskip("pyopencl")
    for name in [name for name in os.environ if name.startswith("AI_PROF_") or name == "CI"]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--device", "opencl"]) == 0
    workloads = tmp_path / "workloads"
    counts_alone(workloads / "example")
    shutil.copytree(workloads / "example", workloads / "other")
    assert main(["gate", "--record"]) == 0
    program = workloads / "other" / "main.py"
    program.write_text(program.read_text().replace("256, 12", "256, 15"))
    for shard in ("1/2", "2/2"):
        assert main(["gate", "--shard", shard, "--report", f"shards/{shard[0]}"]) == 0
    assert not list((tmp_path / "shards").rglob("index.html"))
    assert main(["report", "merge", "shards"]) == 1
    newest = max((tmp_path / "reports").glob("2*"), key=lambda path: path.name)
    report = json.loads((newest / "report.json").read_text())
    reasons = {w["workload"]: w["reason"] for w in report["workloads"]}
    assert reasons["other"] == "regressed"
    assert reasons["example"] in {"pass", "improved"}
    (kernels,) = (c for c in report["workloads"][0]["structure"] if c["name"] == "kernels")
    assert (kernels["baseline"], kernels["candidate"]) == (12, 15)


@pytest.mark.skipif(library_path() is None, reason="the native library is not built here")
def test_shards_of_different_selections_leave_a_workload_out_and_are_refused(tmp_path, monkeypatch, capsys):
    """The share of `work` and of `work`, `more` and `other`: nobody measured `more`."""
    project = enter(tmp_path, monkeypatch)
    for name in ("more", "other"):
        shutil.copytree(project.main.parent, project.main.parents[1] / name)
    assert project.gate("work", "other", "--shard", "1/2", "--report", "shards") == 0
    assert project.gate("--shard", "2/2", "--report", "shards") == 0
    assert main(["report", "merge", "shards"]) == 2
    assert "one of them knows nothing of more: gate all alike" in capsys.readouterr().err


@pytest.mark.parametrize("run_id", ["../../escaped", "/etc/x", ""])
def test_evidence_whose_run_id_would_be_another_folder_is_none(tmp_path, run_id):
    shards.save(tmp_path, Shard(1, 1), measured("a", run_id), {})
    with pytest.raises(UsageError, match="its run id is none"):
        shards.load([tmp_path])
