from __future__ import annotations

from dataclasses import replace

import pytest
from gate_profiles import by_digest, decode, runs_with, train
from gate_runs import make_run

from ai_prof.baselines import store
from ai_prof.baselines.store import Baseline, Origin
from ai_prof.errors import BaselineError


def stored(profiles, tmp_path):
    baseline = Baseline(
        workload="train",
        machine_key="k",
        backend="cuda",
        origin=Origin(who="ada", why="first", when="2026-01-01T00:00:00Z"),
        runs=runs_with(profiles),
    )
    path = store.save(tmp_path, baseline, by_digest(*profiles))
    return path, store.load(tmp_path, "k", "train")


def test_profiles_are_stored_beside_the_baseline(tmp_path):
    program = decode(30)
    profiles = program.runs(9)
    path, baseline = stored(profiles, tmp_path)
    (file,) = path.parent.glob("*.profile.npz")
    assert file.name == f"train.{baseline.profiles[:8]}.profile.npz"
    back = store.load_profiles(path, baseline)
    assert [back[run.profile].digest() for run in baseline.runs] == [p.digest() for p in profiles]
    stored(program.runs(9), tmp_path)
    (renewed,) = path.parent.glob("*.profile.npz")
    assert renewed != file


def test_large_programs_keep_the_latest_profiles_within_the_limit(tmp_path):
    big = replace(train(31), positions=4000)
    profiles = big.runs(40)
    path, baseline = stored(profiles, tmp_path)
    (file,) = path.parent.glob("*.profile.npz")
    assert file.stat().st_size <= store.PROFILES_LIMIT
    back = store.load_profiles(path, baseline)
    assert 10 < len(back) < 40
    assert profiles[-1].digest() in back
    assert profiles[0].digest() not in back


@pytest.mark.parametrize("spoil", ["remove", "cut", "swap"])
def test_profiles_that_are_not_those_stored_are_refused(tmp_path, spoil):
    path, baseline = stored(decode(32).runs(3), tmp_path)
    (file,) = path.parent.glob("*.profile.npz")
    if spoil == "remove":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-10] if spoil == "cut" else b"other")
    with pytest.raises(BaselineError, match="restore both from git"):
        store.load_profiles(path, baseline)


def test_a_baseline_without_profiles_has_none(tmp_path):
    baseline = Baseline(
        workload="train",
        machine_key="k",
        backend="cuda",
        origin=Origin(who="ada", why="first", when="2026-01-01T00:00:00Z"),
        runs=[make_run()],
    )
    path = store.save(tmp_path, baseline)
    assert list(path.parent.glob("*.npz")) == []
    assert store.load_profiles(path, store.load(tmp_path, "k", "train")) == {}
