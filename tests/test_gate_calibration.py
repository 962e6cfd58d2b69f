"""Label-shuffled calibration: no alarm where nothing changed, and one where the stored runs are not alike."""

from __future__ import annotations

import json

import msgspec
import pytest
from gate_profiles import decode
from gate_runs import Machine, make_run

from ai_prof.baselines import accepted, calibrated, store
from ai_prof.cli import main
from ai_prof.errors import BaselineError, NothingToCompareError
from ai_prof.gate.calibration import calibrate
from ai_prof.gate.model import Acceptance

NAMES = ("train", "decode", "serve")


def stored(sessions=10, **fields):
    return {
        name: Machine(seed).baseline(sessions, workload=name, **fields) for seed, name in enumerate(NAMES)
    }


def test_alike_runs_raise_no_alarm_and_the_bound_counts_sessions():
    seen = calibrate(stored(), "cuda", draws=60)
    assert seen.failed == 0
    assert seen.draws == 60
    assert seen.independent == 10
    assert seen.bound == pytest.approx(1 - 0.05 ** (1 / 10))
    assert [row.workload for row in seen.workloads] == list(NAMES)
    assert all(row.worst_total < 2 and row.worst_profile is None for row in seen.workloads)
    assert sum(row.flagged for row in seen.workloads) <= 0.15 * 3 * 60


def test_an_odd_session_is_flagged_and_fresh_launches_do_not_confirm_it():
    runs = stored()
    runs["train"] += Machine(9).session("odd", slower=1.2, workload="train")
    seen = calibrate(runs, "cuda", draws=60)
    train = seen.workloads[0]
    assert train.flagged > 0
    assert train.worst_total > 1
    assert train.failed == 0


def test_one_session_is_split_at_random():
    runs = {"train": Machine(0).session("only", 12)}
    seen = calibrate(runs, "cuda", draws=20)
    assert seen.independent == 4
    assert seen.workloads[0].sessions == 1


def test_profiles_take_part():
    program = decode(3)
    profiles = {one.digest(): one for one in program.runs(18)}
    runs = [make_run(session=f"s{i // 3}", order=i, profile=digest) for i, digest in enumerate(profiles)]
    seen = calibrate({"train": runs}, "cuda", profiles=profiles, draws=10)
    assert 0 < seen.workloads[0].worst_profile < 1


def test_too_few_runs_are_nothing():
    with pytest.raises(NothingToCompareError, match="6 runs"):
        calibrate({"train": Machine(0).session("only", 5)}, "cuda")


def test_the_command_reads_the_store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate"]) == 3
    for name, runs in stored().items():
        origin = store.Origin(who="ada", why="first", when="2026-01-01T00:00:00Z")
        made = store.Baseline(workload=name, machine_key="cuda-x", backend="cuda", origin=origin, runs=runs)
        store.save(tmp_path / "baselines", made)
    assert main(["calibrate", "--draws", "20"]) == 0
    said = capsys.readouterr().out
    assert "0 of 20 builds without a change failed; at most 26 %" in said
    assert main(["calibrate", "--draws", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machines"]["cuda-x"]["independent"] == 10
    assert main(["calibrate", "--draws", "0"]) == 2


def test_a_machine_with_too_few_runs_is_said_and_keeps_nothing_from_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path, one = keep_one(tmp_path)
    few = msgspec.structs.replace(one, machine_key="cuda-a", runs=one.runs[:3])
    store.save(tmp_path / "baselines", few)
    assert main(["calibrate", "--draws", "20"]) == 0
    assert "cuda-a: no baseline has 6 runs" in capsys.readouterr().err
    path.unlink()
    assert main(["calibrate", "--draws", "20"]) == 3
    assert "gating" not in capsys.readouterr().err


def keep_one(folder):
    """Store a baseline; its path and itself."""
    origin = store.Origin(who="ada", why="first", when="2026-01-01T00:00:00Z")
    runs = stored()["train"]
    one = store.Baseline(workload="train", machine_key="cuda-x", backend="cuda", origin=origin, runs=runs)
    return store.save(folder / "baselines", one), one


def test_what_was_accepted_of_a_baseline_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change = Acceptance(metric="syncs", old=1, new=2, who="ada", why="wanted", when="")
    accepted.add(*keep_one(tmp_path), [change])
    assert main(["calibrate", "--draws", "20"]) == 0


def test_the_last_calibration_lies_beside_its_baselines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = keep_one(tmp_path)
    folder = path.parent
    assert main(["calibrate", "--draws", "20"]) == 0
    last = calibrated.latest([folder, tmp_path])
    assert (last.draws, last.failed) == (20, 0)
    assert main(["calibrate", "--draws", "30"]) == 0  # its own file is no baseline
    assert calibrated.latest([folder]).draws == 30
    (folder / calibrated.FILE).write_text("{")
    with pytest.raises(BaselineError, match="remove it, and run `ai-prof calibrate`"):
        calibrated.latest([folder])
    assert calibrated.latest([tmp_path]) is None


@pytest.mark.parametrize(
    "broken", [{"when": "2025-01-01"}, {"when": "2025-01-01T00:00:00"}, {"draws": 0}, {"bound": 2.0}]
)
def test_a_calibration_that_is_none_is_refused_and_loses_no_report(tmp_path, broken):
    good = {"when": "2025-01-01T00:00:00+00:00", "draws": 20, "failed": 0, "bound": 0.1}
    path = tmp_path / calibrated.FILE
    path.write_text(json.dumps({"schema": "ai-prof/calibrated/1", "last": good}))
    assert calibrated.latest([tmp_path]).draws == 20
    path.write_text(json.dumps({"schema": "ai-prof/calibrated/1", "last": good | broken}))
    with pytest.raises(BaselineError, match="is no calibration"):
        calibrated.latest([tmp_path])
