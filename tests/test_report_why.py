from __future__ import annotations

import msgspec
import pytest
import verdicts

from ai_prof.gate.model import Reason, StructureChange, SyncChange, Why
from ai_prof.report import cause, gaps, html, markdown, places, view, words
from ai_prof.timeline.diff_kernels import KernelChange, KernelUse


def test_a_longer_iteration_says_what_it_waits_for_and_where():
    assert cause.sentences(verdicts.regressed_by_time()) == [
        "An iteration takes 4.576 ms longer: the device waits 4.700 ms longer while the host prepares input.",
        "The gap between gemm_2 and memcpy host to device grew from 200.0 µs to 4.700 ms.",
    ]


def test_a_latency_that_is_not_shown_to_have_changed_is_not_called_longer():
    workload = verdicts.regressed_by_time()
    workload.cells = [each for each in workload.cells if each.metric != "iteration_ms"]
    workload.cells.append(verdicts.cell("iteration_ms", 0.2, p_adjusted=0.066))
    assert cause.sentences(workload)[0].startswith(
        "The mean iteration takes 4.576 ms longer, which may be chance; the device waits "
    )
    workload.cells[-1] = verdicts.cell("iteration_ms", -0.1, p_adjusted=0.066)
    assert cause.sentences(workload)[0].startswith(
        "The mean iteration of the runs in the middle takes 4.576 ms longer, the median one of all runs "
        "1.240 ms less, which may be chance; the device waits "
    )


def test_a_median_that_grew_is_not_denied_by_a_mean_that_did_not():
    workload = verdicts.regressed_by_time()
    workload.confirm_head = verdicts.runs("torch_decode", 6, stage=2, turn=1)
    assert cause.sentences(workload)[0] == (
        "The median iteration takes 17.12 ms instead of 12.40 ms, the mean one no longer."
    )


def test_an_iteration_that_takes_no_longer_is_told_after_the_place_that_failed():
    workload = verdicts.regressed_by_time()
    workload.cells = [each for each in workload.cells if each.metric != "iteration_ms"]
    busier = verdicts.runs(
        "torch_decode", 6, stage=2, turn=1, slower=0.98, causes={"launch": 1.0, "sync": 0.5}
    )
    workload.confirm_head = busier
    place, last = cause.sentences(workload)
    assert place == (
        "The gap between gemm_2 and memcpy host to device grew from 200.0 µs to 4.700 ms, while the host "
        "prepares input."
    )
    assert last.startswith("An iteration takes no longer, but the device works ")


def test_a_wait_that_only_has_another_cause_now_is_none_that_grew():
    workload = verdicts.regressed_by_time()
    workload.cells = [each for each in workload.cells if each.metric != "iteration_ms"]
    workload.confirm_head = verdicts.runs(
        "torch_decode", 6, stage=2, turn=1, slower=0.98, causes={"launch": 0.1, "device": 1.5}
    )
    assert cause.sentences(workload)[-1].startswith("An iteration takes no longer, but the device works ")


def test_where_only_a_place_failed_it_is_told_before_times_that_may_be_chance():
    workload = verdicts.regressed_by_time()
    place = msgspec.structs.replace(
        verdicts.cell("host_profile", reason=Reason.REGRESSED),
        unit="us", place="host time between gemm and relu (operation 3)", baseline=144.0, candidate=339.0,
    )  # fmt: skip
    workload.cells = [verdicts.cell("iteration_ms", 0.01, p_adjusted=0.6), place]
    first, second, *_ = cause.sentences(workload)
    assert first == (
        "Host time between gemm and relu grew from 144.0 µs to 339.0 µs an iteration, and the device waits "
        "for it."
    )
    assert "which may be chance" in second
    workload.cells.append(verdicts.cell("gap_ms", 0.5, reason=Reason.REGRESSED))
    assert cause.sentences(workload)[0] == second


def test_a_place_that_failed_says_what_the_host_does_there():
    workload = verdicts.regressed_by_time()
    workload.cells = [
        msgspec.structs.replace(
            verdicts.cell("host_profile", reason=Reason.REGRESSED),
            unit="us", place="host time between gemm_2 and memcpy host to device (operation 0)",
            baseline=200.0, candidate=4700.0,
        )
    ]  # fmt: skip
    assert cause.sentences(workload)[0] == (
        "Host time between gemm_2 and memcpy host to device grew from 200.0 µs to 4.700 ms an iteration, and "
        "the device waits for it while the host prepares input."
    )


def test_where_only_kernels_failed_they_are_told_before_times_that_may_be_chance():
    workload = verdicts.regressed_by_time()
    kernels = msgspec.structs.replace(
        verdicts.cell("kernel_time_ms", reason=Reason.REGRESSED), unit="ms", baseline=5.0, candidate=5.2
    )
    workload.cells = [verdicts.cell("iteration_ms", 0.01, p_adjusted=0.6), kernels]
    first, second, *_ = cause.sentences(workload)
    assert first == "Kernels take 5.200 ms instead of 5.000 ms an iteration."
    assert "which may be chance" in second
    workload.cells.append(verdicts.cell("gap_ms", 0.5, reason=Reason.REGRESSED))
    assert cause.sentences(workload)[0] == second


def test_a_pause_of_the_host_is_told_before_the_overlap_that_it_costs():
    workload = verdicts.regressed_by_time()
    workload.cells.append(verdicts.cell("copy_compute_overlap", -0.5, reason=Reason.REGRESSED))
    assert cause.sentences(workload)[0].endswith("while the host prepares input.")
    assert cause.sentences(workload)[-1].startswith("Copies run beside kernels for")


def test_a_changed_structure_that_costs_no_time_says_what_changed():
    graphs = StructureChange(name="graph_launches", baseline=1, candidate=0, reason=Reason.STRUCTURE_CHANGED)
    workload = verdicts.workload(reason=Reason.STRUCTURE_CHANGED, structure=[graphs])
    said = "Each iteration has 1 fewer graph launch: its kernels are launched one by one."
    assert cause.sentences(workload) == [said]
    assert view.explanation(workload) == said


def test_more_work_says_which_kernel_and_no_time_that_did_not_change():
    assert cause.sentences(verdicts.regressed_by_structure()) == [
        (
            "Each iteration has 64 more kernels, 1 more synchronize, 2.097 MB less copied; void "
            "vector_add<float> runs 68 times instead of 4."
        ),
        "An iteration takes no longer.",
    ]


def test_copies_that_no_longer_overlap_are_said_first_and_a_shorter_iteration_is_no_excuse():
    worse = verdicts.cell("copy_compute_overlap", -0.5, reason=Reason.REGRESSED)
    serial = verdicts.workload(
        reason=Reason.REGRESSED,
        cells=[worse],
        candidate_runs=verdicts.runs("w", 3, stage=1, slower=0.9, causes={"sync": 3.4, "launch": 1.2}),
    )
    assert cause.sentences(serial) == [
        "Copies run beside kernels for 12.0 % of their time instead of 62.0 %.",
        (
            "An iteration takes no longer, but the device waits 3.000 ms longer while the host is blocked in "
            "a synchronize or a blocking copy."
        ),
    ]


def test_work_that_is_copies_apart_from_kernels_is_called_that():
    workload = verdicts.regressed_by_time()
    worse = verdicts.cell("copy_compute_overlap", -0.5, reason=Reason.REGRESSED)
    workload.cells.append(worse)
    workload.confirm_head = verdicts.runs("w", 6, stage=2, turn=1, slower=1.38)
    workload.explained = msgspec.structs.replace(workload.explained, kernel_ms=(10.0, 10.5))
    assert cause.sentences(workload)[1].endswith("ms longer, at copies that ran beside kernels before.")
    workload.explained = msgspec.structs.replace(workload.explained, kernel_ms=(10.0, 14.0))
    assert cause.sentences(workload)[1].endswith("ms longer.")


def test_more_synchronizes_are_said_before_the_overlap_that_they_cost():
    workload = verdicts.regressed_by_structure()
    workload.cells.append(verdicts.cell("copy_compute_overlap", -0.5, reason=Reason.REGRESSED))
    counts, overlap, time, *_ = cause.sentences(workload)
    assert counts.startswith("Each iteration has 64 more kernels, 1 more synchronize")
    assert overlap.startswith("Copies run beside kernels for")
    assert time == "An iteration takes no longer."


def test_a_count_that_grew_less_than_the_iteration_is_said_last():
    workload = verdicts.regressed_by_time()
    few = StructureChange(name="kernels", baseline=384, candidate=389, reason=Reason.REGRESSED)
    workload.structure = [few]
    first, *_, last = cause.sentences(workload)
    assert first.startswith("An iteration takes 4.576 ms longer: the device waits 4.700 ms longer")
    assert last == "Each iteration has 5 more kernels."
    # Half as many again for an iteration that is longer by two thirds: launches cost more than their share.
    workload.confirm_head = verdicts.runs("torch_decode", 6, stage=2, turn=1, slower=1.67, causes={"data": 6})
    workload.structure = [msgspec.structs.replace(few, candidate=576)]
    assert cause.sentences(workload)[0] == "Each iteration has 192 more kernels."
    workload.structure = [msgspec.structs.replace(few, candidate=1718)]
    assert cause.sentences(workload)[0] == "Each iteration has 1,334 more kernels."


def test_kernels_that_a_graph_launched_before_are_said_first():
    workload = verdicts.regressed_by_time()
    graphs = StructureChange(name="graph_launches", baseline=2, candidate=0, reason=Reason.STRUCTURE_CHANGED)
    workload.structure = [graphs]
    said = "Each iteration has 2 fewer graph launches: its kernels are launched one by one."
    assert cause.sentences(workload)[0] == said
    assert cause.shared([workload, workload]) == "All of them: no graph launches any more."
    workload.structure = [msgspec.structs.replace(graphs, candidate=1, reason=Reason.IMPROVED)]
    assert cause.sentences(workload)[-1] == "Each iteration has 1 fewer graph launch."


def test_more_synchronizes_say_where_they_are_and_what_follows_them():
    workload = verdicts.regressed_by_time()
    workload.structure = [StructureChange(name="syncs", baseline=300, candidate=308, reason=Reason.REGRESSED)]
    sites = [
        SyncChange("cudaDeviceSynchronize", "gemm", (0.0, 6.0)),
        SyncChange("cudaStreamSynchronize", "", (1.0, 2.0)),
        SyncChange("cudaEventSynchronize", "relu", (4.0, 2.0)),
    ]
    workload.explained = msgspec.structs.replace(workload.explained, syncs=sites)
    causes = {"launch": 6.0, "sync": 0.5, "device": 0.3, "data": 0.2}
    runs = verdicts.runs("w", 6, stage=2, turn=1, slower=1.38, causes=causes)
    workload.confirm_head = [msgspec.structs.replace(run, sync_shadow_ms=4.5) for run in runs]
    counts, time, *_ = cause.sentences(workload)
    assert counts == (
        "Each iteration has 8 more synchronizes: cudaDeviceSynchronize after gemm (6), "
        "cudaStreamSynchronize (1), elsewhere (1)."
    )
    assert "longer, because synchronizes emptied its queue" in time
    shadow = next(row for row in gaps.table(*gaps.compared(workload)) if row.cause == "shadow")
    assert (shadow.before, shadow.after) == ("0.00 ms", "4.50 ms")
    workload.confirm_head = runs
    assert cause.sentences(workload)[1].endswith("while the host issues calls.")


def test_the_latency_leads_and_what_made_it_follows():
    workload = verdicts.regressed_by_time()
    workload.structure = [StructureChange(name="syncs", baseline=1, candidate=7, reason=Reason.REGRESSED)]
    assert [row.key for row in view.leading(workload)][:2] == ["iteration_ms", "syncs"]


def test_work_cut_into_more_kernels_is_called_that():
    workload = verdicts.regressed_by_structure()
    name = "void vector_add<float>(float*)"
    cut = KernelChange(name, ["more often"], KernelUse(4, 100.0, 0.4), KernelUse(68, 6.0, 0.408), 0.008)
    workload.explained = Why(sides=("baseline", "candidate"), kernels=[cut])
    workload.cells = [verdicts.cell("kernel_mean_us", -0.5, reason=Reason.REGRESSED)]
    said = "vector_add<float> runs 68 times instead of 4, 6.000 µs each instead of 100.0 µs."
    assert cause.sentences(workload)[0].endswith(said)
    (row,) = view.metric_rows(workload)
    assert (row.verdict, row.word.tone) == ("shorter, not faster", "warn")


@pytest.mark.parametrize(
    ("threads", "said"),
    [
        ((0, 512), "."),
        ((512, 514), ", in launches of the same size."),
        ((512, 1024), ", each launch with 2 times as many threads."),
        ((512, 256), ", each launch with 1/2 of the threads."),
    ],
)
def test_a_longer_kernel_says_whether_its_launches_grew(threads, said):
    before, after = KernelUse(10, 100.0, 1.0, threads[0]), KernelUse(10, 300.0, 3.0, threads[1])
    kernel = KernelChange("gemm", ["slower"], before, after, 2.0)
    assert places.kernel_sentence(kernel) == (
        f"gemm takes 3 times as long, 3.000 ms instead of 1.000 ms an iteration{said}"
    )


def test_a_kernel_that_runs_more_often_is_not_called_longer():
    kernel = KernelChange(
        "smooth", ["more often"], KernelUse(12, 223.3, 2.68), KernelUse(15, 223.4, 3.352), 0.672
    )
    told = "smooth runs 15 times instead of 12, 223.4 µs each instead of 223.3 µs"
    assert places.kernel_sentence(kernel) == f"{told}: 3.352 ms instead of 2.680 ms an iteration."
    workload = verdicts.regressed_by_time()
    workload.explained = Why(sides=("baseline", "candidate"), kernels=[kernel])
    name = f"{words.KERNEL}smooth"
    more = [
        StructureChange(name=each, baseline=before, candidate=after, reason=Reason.REGRESSED)
        for each, before, after in (("kernels", 12, 18), (name, 12, 15))
    ]
    workload.structure = more
    first, *rest = cause.sentences(workload)
    assert first.endswith(f"{told}.")  # and once
    assert not any("smooth" in sentence for sentence in rest)


def test_a_median_that_grew_otherwise_than_the_mean_is_told_beside_it():
    workload = verdicts.regressed_by_time()
    (latency,) = [each for each in workload.cells if each.metric == "iteration_ms"]
    latency.candidate = latency.baseline + 2.0
    assert cause.sentences(workload)[0].startswith(
        "An iteration takes 2.000 ms longer, the mean one of the runs in the middle 4.576 ms: the device "
    )


def test_many_slower_kernels_are_summed_up():
    workload = verdicts.regressed_by_time()
    kernels = [
        KernelChange(name, ["slower"], KernelUse(10, 100.0, 1.0), KernelUse(10, 300.0, 3.0), 2.0)
        for name in "abc"
    ]
    workload.explained = msgspec.structs.replace(workload.explained, kernels=kernels)
    assert cause.sentences(workload)[1:] == [
        (
            "3 kernels take 9.000 ms instead of 3.000 ms an iteration; "
            "a takes 3 times as long, 3.000 ms instead of 1.000 ms."
        ),
        "The gap between gemm_2 and memcpy host to device grew from 200.0 µs to 4.700 ms.",
    ]


def test_kernels_that_hardly_changed_are_not_counted():
    workload = verdicts.regressed_by_time()
    kernels = [
        KernelChange(name, ["slower"], KernelUse(1, 100.0, 0.1), KernelUse(1, 100.6, 0.1006), 0.0006)
        for name in "abc"
    ]
    workload.explained = msgspec.structs.replace(workload.explained, kernels=kernels)
    assert not any("3 kernels" in sentence for sentence in cause.sentences(workload))


def test_a_pass_has_no_cause():
    assert cause.sentences(verdicts.workload()) == []


@pytest.mark.parametrize(
    ("why", "left"),
    [
        ("iteration latency grew 337 % (4.82 -> 21.1 ms), floor 1 % and 0.02 ms", ""),
        ("gap ratio grew 8.9 points (88.5 -> 97.4 %), floor 1 point", ""),
        ("iteration latency did not change (4.82 ms): within the noise", "within the noise"),
        (
            "gap ratio fell 0.2 points (1.0 -> 0.8 %): below the floor of 1 point",
            "below the floor of 1 point",
        ),
        (
            "time of f<1> (operation 5) grew 40 us per iteration (1 -> 41 us), floor 20 us: never felt",
            "never felt",
        ),
        ("1 more synchronize per iteration (1 -> 2)", ""),
        ("64 more kernels per iteration (4 -> 68); latency improved", "latency improved"),
        ("kernel void f<float>(int) added (0 -> 1 per iteration)", ""),
        (
            "no copies in the candidate: no overlap to compare",
            "no copies in the candidate: no overlap to compare",
        ),
        (
            "host time between a and b (operation 3) grew 40 us per iteration (1 -> 41 us, T 9), floor 20 us",
            "",
        ),
    ],
)
def test_a_reason_does_not_repeat_what_stands_in_columns(why, left):
    assert view.unsaid(why) == left


def test_a_place_is_named_and_measured_in_us():
    why = "host time between a and b (operation 3) grew 40 us per iteration (10 -> 50 us), floor 20 us"
    cell = verdicts.cell("host_profile", 4.0, baseline=10.0, candidate=50.0, floor=2.0, why=why)
    row = view.metric_row(
        "w",
        msgspec.structs.replace(
            cell, unit="us", place="host time between a and b (operation 3)", interval=(3.0, 5.0), mde=0.5
        ),
    )
    assert row.name == "Host time between a and b"
    several = msgspec.structs.replace(cell, unit="us", place="time of a (61 operations from 18 on)")
    assert view.metric_row("w", several).name == "Time of a (61 operations)"
    assert (row.change, row.interval, row.floor) == ("+40.00 µs", "+30.00 to +50.00 µs", "20.00 µs")
    assert row.told == ""


def test_what_all_regressions_have_in_common_is_said_above_them():
    by_time, by_count = verdicts.regressed_by_time(), verdicts.regressed_by_structure()
    again = verdicts.regressed_by_time()
    again.workload = "another"
    told = view.subline(verdicts.build(by_time, again, verdicts.workload("calm")))
    assert told == "All of them: the device waits longer while the host prepares input."
    assert told in html.render(verdicts.build(by_time, again))
    assert told in markdown.render(verdicts.build(by_time, again))
    assert view.subline(verdicts.build(by_time, by_count)) == ""
    assert view.subline(verdicts.build(by_time)) == ""
    more = StructureChange(name="syncs", baseline=3, candidate=15, reason=Reason.REGRESSED)
    for each in (by_time, again):
        each.structure = [more]
    assert view.subline(verdicts.build(by_time, again)) == "All of them: more synchronizes an iteration."
