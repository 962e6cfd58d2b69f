from __future__ import annotations

import itertools
import math
from dataclasses import replace

import aiprof_file as af
import numpy as np
import pytest
from gate_profiles import FLOORS, decode, findings, graph, train

from ai_prof.gate.profile import adjusted_us, compare, critical_value
from ai_prof.gate.profile_align import align
from ai_prof.gate.profile_model import Threads, fit
from ai_prof.timeline.evidence import evidence
from ai_prof.trace.open import open_trace

PROGRAMS = {"decode": decode, "train": train}


def names_changed(profile, names):
    return replace(profile, names=tuple(names))


def test_speed_of_each_thread_is_recovered_and_follows_no_single_place():
    b = np.linspace(2, 5, 60)
    thread = np.repeat([0, 1, 0], 20)
    threads = Threads(thread, np.roll(thread, 1))
    speeds = np.random.default_rng(1).normal(0, 0.3, (8, 2))
    x = b + speeds[:, thread]
    x[3, 7] += 2.0
    model = fit(x, threads)
    found = model.speed(x) - np.median(model.speed(x), axis=0)
    inside = thread == np.roll(thread, 1)
    expected = speeds[:, thread] - np.median(speeds, axis=0)[thread]
    assert found[:, inside] == pytest.approx(expected[:, inside], abs=0.02)
    handed = np.flatnonzero(~inside)
    middle = (speeds - np.median(speeds, axis=0)).mean(axis=1)
    middle -= np.median(middle)
    assert found[:, handed] == pytest.approx(np.repeat(middle[:, None], len(handed), 1), abs=0.03)


def test_places_follow_the_speed_each_in_its_own_way():
    lam = np.linspace(0.7, 1.3, 41)
    speeds = np.linspace(-0.5, 0.5, 11)
    x = 3 + lam * speeds[:, None]
    model = fit(x, Threads(np.zeros(41, int), np.zeros(41, int)))
    # The prior keeps lambda a little nearer to 1 than it is: 1.1 of squared speeds against 0.2.
    assert model.lam == pytest.approx(1 + (lam - 1) * 1.1 / 1.3, abs=1e-6)


@pytest.mark.parametrize(
    ("runs", "critical"), [(2, None), (3, 5), (5, 5), (6, 3.5), (9, 3.5), (10, 2.8), (40, 2.8)]
)
def test_critical_values_are_frozen(runs, critical):
    assert critical_value(runs) == critical


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("slow", [False, True])
def test_no_change_is_not_flagged_however_fast_the_hosts_were(name, slow):
    """24 comparisons each; with `slow`, the baseline saw only fast hosts and the candidate only slow ones."""
    for seed in range(12):
        program = PROGRAMS[name](seed)
        sd = program.speed_sd
        for runs in (3, 10):
            if slow:
                old = [program.run(speed=-abs(program.rng.normal(0, sd))) for _ in range(runs)]
                new = [program.run(speed=abs(program.rng.normal(0, sd))) for _ in range(3)]
            else:
                old, new = program.runs(runs), program.runs(3)
            assert [result.finding for result in compare(old, new, FLOORS)] == [None] * 3


@pytest.mark.parametrize(
    ("name", "start", "delay"),
    [
        *itertools.product(PROGRAMS, [True, False], [100, 300]),
        ("decode", True, 50),
        ("decode", False, 50),
        ("train", False, 50),  # at its start, this is an eighth of a wait that varies by as much
    ],
)
def test_a_delay_of_the_host_is_found_where_it_is(name, start, delay):
    right = 0
    for seed in range(6):
        program = PROGRAMS[name](100 + seed)
        place = 0 if start else program.positions // 2
        found = findings(compare(program.runs(10), program.runs(3, delays={place: delay}), FLOORS))
        right += bool(
            found
            and found[0].positions == (place,)
            and abs(found[0].size_us - delay) <= max(0.15 * delay, 10)
        )
    assert right >= 5


FEW = [(0,), (0, 1), (0, 1, 2), (0, 1, 2, 59)]


@pytest.mark.parametrize("submits", FEW)
def test_a_delay_among_few_submissions_is_no_speed_of_the_host(submits):
    """500 us at the place that outweighs the others, in 20 programs of one to four submissions."""
    for seed in range(20):
        program = graph(seed, submits)
        old, new = program.runs(6), program.runs(3, delays={0: 500.0})
        (found,) = findings(compare(old, new, FLOORS))
        assert found.positions == (0,)
        assert found.felt
        # What a host that differs by 12 % makes of a place of 100 us is within.
        assert found.size_us == pytest.approx(500, abs=60)


@pytest.mark.parametrize("submits", FEW)
def test_the_speed_of_a_host_is_no_delay_among_few_submissions(submits):
    for seed in range(20):
        program = graph(seed, submits)
        slow = [program.run(speed=abs(program.rng.normal(0, program.speed_sd))) for _ in range(3)]
        assert [result.finding for result in compare(program.runs(6), slow, FLOORS)] == [None] * 3


@pytest.mark.parametrize("submits", FEW)
def test_what_gets_faster_among_few_submissions_delays_no_other(submits):
    """500 us less at the place that outweighs the others, which are of 100 us here as well."""
    for seed in range(20):
        program = graph(seed, submits)
        program.host[list(submits)] = np.log(100)
        old, new = program.runs(10, delays={0: 500.0}), program.runs(3)
        assert not findings(compare(old, new, FLOORS))


@pytest.mark.parametrize("submits", FEW)
def test_fresh_runs_give_a_delay_among_few_submissions_its_size(submits):
    """Their model is of both sides together, so half of them are the faster ones."""
    sizes = []
    for seed in range(10):
        program = graph(seed, submits)
        old = program.runs(6)
        (found,) = findings(compare(old, program.runs(3, delays={0: 500.0}), FLOORS))
        fresh = [*program.runs(6), *program.runs(6, delays={0: 500.0})]
        times = adjusted_us(found, old[-1], fresh)
        sizes.append(np.median(times[6:]) - np.median(times[:6]))
    assert np.median(sizes) == pytest.approx(500, rel=0.15)


def test_a_place_that_outweighs_all_others_is_doubted_where_a_thread_takes_over():
    b = np.log([2000.0, 60.0, 40.0, 30.0, 50.0])
    for thread in ([0, 0, 0, 0, 0], [0, 0, 0, 0, 1]):
        threads = Threads(np.array(thread), np.roll(thread, 1))
        assert fit(np.tile(b, (3, 1)), threads).unlike[0] == 0.1


def test_a_regression_spread_over_many_places_is_found_by_its_role():
    program = decode(5)
    role = np.bincount(program.roles).argmax()
    program.roles[::4] = role
    program.roles[3::4] = role + 1 if role + 1 < program.positions // 6 else 0
    everywhere = dict.fromkeys(range(0, 150, 4), 4.0)
    (found,) = findings(compare(program.runs(10), program.runs(3, delays=everywhere), FLOORS))
    assert len(set(found.positions) & set(everywhere)) > 0.8 * len(everywhere)
    assert found.size_us == pytest.approx(4 * len(everywhere), rel=0.25)


def test_a_slowdown_of_every_place_alike_is_the_speed_of_the_host():
    program = decode(6)
    assert not findings(compare(program.runs(10, speed=0.0), program.runs(3, speed=0.3), FLOORS))


def test_a_slower_kernel_is_found_beside_a_slower_device():
    program = train(7)
    old, new = program.runs(10), program.runs(3)
    place = int(np.argmax(program.device))
    for run in new:
        run.values[3] *= 1.05
        run.values[3, place] *= 1.3
    (found,) = findings(compare(old, new, FLOORS), "kernel")
    assert found.positions == (place,)
    expected = 0.3 * 1.05 * math.exp(program.device[place])
    assert found.size_us == pytest.approx(expected, rel=0.1)


def test_a_delay_that_most_iterations_lack_shows_in_the_slow_ones():
    program = decode(8)
    old, new = program.runs(10), program.runs(3)
    for run in new:
        run.values[2, 40] = np.log(np.exp(run.values[2, 40]) + 200)
    results = compare(old, new, FLOORS)
    assert not findings(results)
    (found,) = findings(results, "host_slow")
    assert found.positions == (40,)


def test_whether_the_device_feels_a_delay():
    for program, felt in ((decode(9), True), (train(9), False)):
        (found,) = findings(compare(program.runs(10), program.runs(3, delays={30: 200.0}), FLOORS))
        assert found.felt is felt


def test_an_iteration_that_begins_elsewhere_is_turned_back():
    program = decode(10)
    old, new = program.runs(10), program.runs(3, delays={75: 100.0})
    turned = [
        replace(
            run,
            names=run.names[75:] + run.names[:75],
            kind=np.roll(run.kind, -75),
            thread=np.roll(run.thread, -75),
            values=np.roll(run.values, -75, axis=1),
        )
        for run in new
    ]
    assert compare(old, turned, FLOORS) == compare(old, new, FLOORS)


def paused(folder, pauses, *, added=False):
    """Evidence of a loop of ten kernels, with pauses of the host in us before some of them."""
    program = af.Program()
    for _ in range(40):
        for i in range(10):
            program.work(1000 * pauses.get(i, 10))
            program.launch(f"kernel_{'abcdefghij'[i]}", 5_000)
            if added and i == 7:
                program.launch("added", 5_000)
    folder.mkdir()
    return evidence(open_trace(program.write(folder)))


def test_an_iteration_that_begins_after_another_pause_has_the_same_counts_and_places(tmp_path):
    """Nothing fixes where the loop begins but its longest pause, and a delay of another makes that one it."""
    old = paused(tmp_path / "old", {0: 400})
    new = paused(tmp_path / "new", {0: 400, 6: 500})
    assert (old.profile.names[0], new.profile.names[0]) == ("kernel_a", "kernel_g")
    assert (new.structure, new.kernels) == (old.structure, old.kernels)
    runs = align(old.profile, [old.profile, new.profile])
    grown = np.diff(np.exp(runs.row("host_p25")), axis=0)[0]
    assert grown == pytest.approx([0] * 6 + [490] + [0] * 3, abs=0.1)


def test_one_with_more_work_that_begins_elsewhere_is_turned_back_too(tmp_path):
    old = paused(tmp_path / "old", {0: 400})
    new = paused(tmp_path / "new", {0: 400, 6: 500}, added=True)
    assert (old.profile.names[0], new.profile.names[0]) == ("kernel_a", "kernel_g")
    runs = align(old.profile, [old.profile, new.profile])
    assert runs.position.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9]  # before kernel_i there is another one now
    grown = np.diff(np.exp(runs.row("host_p25")), axis=0)[0]
    assert grown == pytest.approx([0] * 6 + [490] + [0] * 2, abs=0.1)


def wild(runs, place, us):
    """The runs with the slow iterations of one place longer by `us`, where that is not 0."""
    made = []
    for run, added in zip(runs, us, strict=True):
        values = run.values.copy()
        values[2, place] = np.log(np.exp(values[2, place]) + added)
        made.append(replace(run, values=values))
    return made


def test_a_place_that_is_wild_in_several_runs_is_not_flagged_for_being_so_again():
    flagged = 0
    for seed in range(30):
        program = decode(seed)
        us = np.where(program.rng.random(13) < 0.4, program.rng.uniform(500, 9000, 13), 0.0)
        us[:2] = 700.0, 4000.0
        runs = wild(program.runs(13), 75, us)
        results = compare(runs[:10], runs[10:], FLOORS)
        flagged += any(result.finding for result in results)
    assert flagged <= 1


def test_one_wild_run_of_the_baseline_hides_nothing():
    program = decode(3)
    old = wild(program.runs(10), 75, [0.0] * 9 + [5000.0])
    new = wild(program.runs(3), 75, [300.0] * 3)
    (finding,) = findings(compare(old, new, FLOORS), "host_slow")
    assert 75 in finding.positions


def test_two_runs_of_three_that_were_disturbed_at_one_place_tell_of_no_change():
    program = decode(4)
    old, calm = program.runs(10), program.runs(3)
    for delays in itertools.permutations([0.0, 3000.0, 9000.0]):
        assert not findings(compare(old, wild(calm, 75, delays), FLOORS), "host_slow")
    assert findings(compare(old, wild(calm, 75, [300.0, 3000.0, 9000.0]), FLOORS), "host_slow")


def test_a_delay_that_wanders_between_neighbours_is_none_of_either():
    """A quarter of the iterations waits for a core at one call, the candidates' at the call after it."""
    program = decode(9)
    old, new = wild(program.runs(10), 60, [5000.0] * 10), program.runs(3)
    moved = wild(wild(new, 60, [3000.0] * 3), 61, [4000.0] * 3)
    assert not findings(compare(old, moved, FLOORS), "host_slow")
    (elsewhere,) = findings(compare(old, wild(moved, 100, [300.0] * 3), FLOORS), "host_slow")
    assert elsewhere.positions == (100,)


def test_where_the_structure_differs_the_rest_is_compared():
    program = decode(11)
    old, new = program.runs(10), program.runs(3, delays={100: 100.0})

    def with_one_more(run):
        at = [*range(60), 60, *range(60, 150)]
        names = [*run.names[:60], "added", *run.names[60:]]
        return replace(
            run, names=tuple(names), kind=run.kind[at], thread=run.thread[at], values=run.values[:, at]
        )

    more = [with_one_more(run) for run in new]
    both = align(old[0], [old[0], more[0]])
    assert set(range(150)) - set(both.position.tolist()) == {60}
    (found,) = findings(compare(old, more, FLOORS))
    assert found.positions == (100,)
    strangers = [names_changed(run, [f"other_{i}" for i in range(150)]) for run in new]
    assert compare(old, strangers, FLOORS) == []
