from __future__ import annotations

import re

import numpy as np
import pytest
from gate_profiles import FLOORS, by_digest, decode, findings, runs_with, train
from gate_runs import make_run

from ai_prof.gate import decide, screen
from ai_prof.gate.decide import Fresh
from ai_prof.gate.metrics import Floor, Rules
from ai_prof.gate.model import Evidence, Reason
from ai_prof.gate.profile import adjusted_us, compare

PRIORS = screen.table_priors("cuda")


def screened(old, new, rules=Rules()):  # noqa: B008 - frozen
    return decide.screen_workload(
        "train",
        runs_with(old),
        runs_with(new, session="now"),
        rules=rules,
        priors=PRIORS,
        profiles=by_digest(*old, *new),
    )


def cell(verdict, key="host_profile"):
    return next(cell for cell in verdict.cells if cell.metric == key)


def settled(verdict, known, base, head):
    fresh = Fresh(base=runs_with(base, session="now"), head=runs_with(head, session="now"))
    profiles = by_digest(*known, *base, *head)
    return decide.settle([verdict], {"train": fresh}, rules={}, priors=PRIORS, profiles=profiles)[0]


def test_a_place_that_grew_is_flagged_and_fails_after_fresh_runs():
    program, delays = decode(20), {60: 100.0}
    old, new = program.runs(10), program.runs(3, delays=delays)
    verdict = screened(old, new)
    assert (verdict.flagged, verdict.reason) == (True, Reason.INCONCLUSIVE)
    assert "host time between kernel_" in verdict.why
    assert "(operation 60) grew" in verdict.why
    final = settled(verdict, (*old, *new), program.runs(6), program.runs(6, delays=delays))
    assert (final.reason, final.evidence) == (Reason.REGRESSED, Evidence.CONFIRMED)
    confirmed = cell(final)
    assert confirmed.p_adjusted <= 0.01
    assert confirmed.place == cell(verdict).place
    assert "(operation 60)" in confirmed.place
    assert "us per iteration (" in final.why
    assert confirmed.candidate - confirmed.baseline == pytest.approx(100, rel=0.2)
    cleared = settled(verdict, (*old, *new), program.runs(6), program.runs(6))
    assert cleared.reason is Reason.PASS
    assert "flagged by the screen, not confirmed" in cell(cleared).notes


def test_a_confirmed_place_of_an_iteration_that_got_shorter_is_not_called_unconfirmed():
    program, delays = decode(20), {60: 100.0}
    old, new = program.runs(10), program.runs(3, delays=delays)
    base, head = program.runs(6), program.runs(6, delays=delays)
    latencies = np.linspace(4.0, 4.05, 6)
    fresh = Fresh(
        base=[make_run(profile=p.digest(), latency=x) for p, x in zip(base, latencies, strict=True)],
        head=[make_run(profile=p.digest(), latency=x - 0.5) for p, x in zip(head, latencies, strict=True)],
    )
    final = decide.settle(
        [screened(old, new)], {"train": fresh}, rules={}, priors=PRIORS,
        profiles=by_digest(*old, *new, *base, *head),
    )[0]  # fmt: skip
    assert final.reason is Reason.IMPROVED
    assert cell(final).why.endswith(": the iteration got shorter")
    assert cell(final).notes == []


def test_without_base_the_same_place_must_be_flagged_again():
    program, delays = decode(21), {60: 100.0}
    old, new = program.runs(10), program.runs(3, delays=delays)
    verdict = screened(old, new)
    again = settled(verdict, (*old, *new), [], program.runs(3, delays=delays))
    assert (again.reason, again.evidence) == (Reason.REGRESSED, Evidence.REPEATED)
    elsewhere = settled(verdict, (*old, *new), [], program.runs(3, delays={90: 100.0}))
    assert elsewhere.reason is Reason.PASS


def test_without_base_a_delay_that_fresh_runs_show_the_device_not_to_feel_only_warns():
    program, delays = decode(21), {60: 100.0}
    old, new, fresh = program.runs(10), program.runs(3, delays=delays), program.runs(3, delays=delays)
    for run in fresh:
        run.values[4] = 1.0
    final = settled(screened(old, new), (*old, *new), [], fresh)
    assert (final.reason, final.evidence) == (Reason.PASS, Evidence.REPEATED)
    assert cell(final).notes == ["warning"]
    assert "(operation 60)" in cell(final).place


def test_fresh_runs_without_profiles_leave_the_flag_open():
    program, delays = decode(22), {60: 100.0}
    old, new = program.runs(10), program.runs(3, delays=delays)
    fresh = Fresh(base=[make_run(order=i) for i in range(6)], head=[make_run(order=i) for i in range(6)])
    final = decide.settle(
        [screened(old, new)], {"train": fresh}, rules={}, priors=PRIORS, profiles=by_digest(*old, *new)
    )[0]
    assert final.reason is Reason.INCONCLUSIVE


def test_what_stands_out_by_less_than_the_floor_is_said_to():
    program = decode(24)
    old, new = program.runs(10), program.runs(3, delays={60: 100.0})
    said = cell(screened(old, new, Rules(floors={"host_profile": Floor(absolute=500.0)}))).why
    assert re.match(r"no place of the host stands out from the others by the floor of 500 us \(T \d", said)


def test_a_delay_that_the_device_never_feels_only_warns():
    program = train(23)
    verdict = screened(program.runs(10), program.runs(3, delays={200: 300.0}))
    assert (verdict.flagged, verdict.reason) == (False, Reason.PASS)
    assert cell(verdict).notes == ["warning"]
    assert "in most iterations the device does not wait for it" in cell(verdict).why


def test_what_the_device_idles_longer_for_elsewhere_is_no_wait_for_a_delay():
    program = train(23)
    old, new = program.runs(10), program.runs(3, delays={200: 300.0})
    for run in new:
        run.values[4, :10] += 100.0
    verdict = screened(old, new)
    assert (verdict.flagged, cell(verdict).notes) == (False, ["warning"])


def test_a_delay_that_the_device_waits_for_is_felt_on_a_faster_host_too():
    program = decode(29)
    old = program.runs(10, speed=0.0)
    new = program.runs(3, speed=-0.4, delays=dict.fromkeys(range(3, 150, 4), 10.0))
    idle = [np.median([run.values[4].sum() for run in side]) for side in (old, new)]
    assert idle[1] < idle[0]
    assert [finding.felt for finding in findings(compare(old, new, FLOORS))] == [True]


def test_a_delay_that_fresh_runs_show_the_device_not_to_feel_is_no_regression():
    program, delays = decode(28), {60: 100.0}
    old, new = program.runs(10), program.runs(3, delays=delays)
    base, head = program.runs(6, speed=0.0), program.runs(6, speed=0.0, delays=delays)
    for run in (*base, *head):
        run.values[4] = 1.0
    final = settled(screened(old, new), (*old, *new), base, head)
    assert final.reason is Reason.PASS
    assert "in most iterations the device does not wait for it" in cell(final).why
    assert cell(final).notes == ["warning"]  # the delay itself was confirmed


def test_what_would_be_seen_at_any_place_is_seen_where_most_can_hide():
    program = decode(26)
    old = program.runs(10)
    quiet = compare(old, program.runs(3), FLOORS)[0]
    assert quiet.anywhere_us > 2 * quiet.detectable_us
    seen = {
        us: sum(bool(findings(compare(old, program.runs(3, delays={0: us}), FLOORS))) for _ in range(20))
        for us in (quiet.detectable_us, quiet.anywhere_us)
    }
    assert seen[quiet.detectable_us] < 14
    assert seen[quiet.anywhere_us] >= 16


def test_policy_and_floor_hold_for_places():
    program = decode(24)
    old, new = program.runs(10), program.runs(3, delays={60: 100.0})
    assert not screened(old, new, Rules(policy={"host_profile": "warn"})).flagged
    ignored = screened(old, new, Rules(policy={"host_profile": "ignore", "kernel_profile": "ignore"}))
    assert not any(cell.metric.endswith("_profile") for cell in ignored.cells)
    assert not ignored.flagged


def test_nothing_found_says_what_would_have_been():
    program = decode(25)
    verdict = screened(program.runs(10), program.runs(3))
    assert verdict.reason is Reason.PASS
    assert "us at any would have been seen" in cell(verdict).why


def test_a_baseline_without_profiles_is_said():
    program = decode(26)
    new = program.runs(3)
    verdict = decide.screen_workload(
        "train",
        [make_run(order=i) for i in range(10)],
        runs_with(new, session="now"),
        rules=Rules(),
        priors=PRIORS,
        profiles=by_digest(*new),
    )
    assert any(note.startswith("no aligned profile: 0 runs of the baseline") for note in verdict.notes)


def test_confirmed_values_do_not_know_their_labels():
    """Base and head make one model, so that which is which changes no value."""
    program = decode(27)
    old, new = program.runs(10), program.runs(3, delays={60: 100.0})
    (finding,) = findings(compare(old, new, FLOORS))
    fresh = program.runs(6) + program.runs(6, delays={60: 100.0})
    values = adjusted_us(finding, old[-1], fresh)
    order = np.random.default_rng(1).permutation(12)
    assert adjusted_us(finding, old[-1], [fresh[i] for i in order]) == pytest.approx(values[order])
    assert np.median(values[6:]) - np.median(values[:6]) == pytest.approx(100, rel=0.15)
