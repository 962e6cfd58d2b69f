from __future__ import annotations

import gzip
import json

import aiprof_file as af
import msgspec
import pytest
import verdicts
from test_timeline_profile import loop, of

from ai_prof.errors import UsageError
from ai_prof.gate.explain import explain
from ai_prof.gate.model import GapChange, Reason, StructureChange, SyncChange, Why
from ai_prof.report import cause, gaps, html, lanes, markdown, places, view, why_view, words
from ai_prof.report import format as fmt
from ai_prof.report.write import write_reports
from ai_prof.timeline.diff_kernels import KernelChange, KernelUse

TIMES = "\N{MULTIPLICATION SIGN}"


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
    *places, last = cause.sentences(workload)
    assert places
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


def test_a_kernel_of_which_another_variant_runs_names_both():
    uses = (KernelUse(10, 100.0, 1.0, 0, f"gemm_{tile}") for tile in ("128x64", "64x64"))
    change = KernelChange("gemm_#x#", ["slower"], *uses, 0.2)
    ((row,), _) = why_view.rows(Why(sides=("baseline", "candidate"), kernels=[change]))
    assert row.told == "before gemm_128x64, now gemm_64x64"


def test_gaps_in_the_shadow_of_synchronizes_say_so():
    gap = GapChange("gemm", "relu", (52, 26), (100.0, 400.0), {"launch": 400.0}, {}, 360.0)
    more = SyncChange("cudaDeviceSynchronize", "gemm", (0, 1))
    told = []
    for syncs in ([more], []):  # where there are no more of them than before, they are not why
        ((row,), _) = why_view.rows(Why(sides=("baseline", "candidate"), gaps=[gap], syncs=syncs))
        told.append(row.told)
    assert told == ["90 % of it in the shadow of synchronizes", ""]
    assert places.gap_sentence(gap) == (
        "The gaps between gemm and relu (26, before 52) grew from 100.0 µs to 400.0 µs in all."
    )


def test_a_median_that_grew_otherwise_than_the_mean_is_told_beside_it():
    workload = verdicts.regressed_by_time()
    (latency,) = [each for each in workload.cells if each.metric == "iteration_ms"]
    latency.candidate = latency.baseline + 2.0
    assert cause.sentences(workload)[0].startswith(
        "The mean iteration of the runs in the middle takes 4.576 ms longer, "
        "the median one of all runs 2.000 ms longer: the device waits"
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


def test_what_comes_now_and_then_is_shown_as_a_share_of_the_iterations():
    use = KernelUse(0.25, 300.0, 0.075)
    added = KernelChange("f", ["added"], None, use, 0.075)
    (row,), _ = why_view.rows(msgspec.structs.replace(verdicts.explained(), kernels=[added], gaps=[]))
    assert (row.before.total, row.after.total, row.after.each) == (
        fmt.NOTHING,
        "75.00 µs",
        "300.0 µs in 25 % of iterations",
    )
    once, several = KernelUse(1, 12.0, 0.012), KernelUse(3, 12.0, 0.036)
    more = KernelChange("f", ["faster", "more often"], once, several, 0.024)
    (row,), _ = why_view.rows(msgspec.structs.replace(verdicts.explained(), kernels=[more], gaps=[]))
    assert row.what == "kernel shorter, more often"
    assert row.before == why_view.Spell("12.00 µs")
    assert row.after == why_view.Spell("36.00 µs", f"3 {TIMES} 12.00 µs")


def test_the_causes_of_gaps_are_named_with_their_shares():
    assert why_view.causes({"data": 12.0}) == [("data", "data")]
    named = why_view.causes({"launch": 60.0, "host": 30.0, "wait": 10.0})
    assert named == [("launch", "launch 60 %"), ("host", "host 30 %")]
    assert why_view.causes({}) == []


def test_gaps_that_are_new_are_called_that_and_only_long_calls_in_them_named():
    (gap,) = verdicts.explained().gaps
    calls = {"clEnqueueReadBuffer": 0.9, "clWaitForEvents": 0.0005}
    new = msgspec.structs.replace(gap, count=(0, 12), us=(0.0, 10_780.0), calls_ms=calls)
    said = "The 12 gaps between gemm_2 and memcpy host to device are new: 10.78 ms in all."
    assert places.gap_sentence(new) == said
    grown = msgspec.structs.replace(gap, count=(1, 220), us=(3.2, 348.8))
    assert places.gap_sentence(grown).endswith(" grew from 3.200 µs to 348.8 µs in all.")
    (row,), _ = why_view.rows(msgspec.structs.replace(verdicts.explained(), kernels=[], gaps=[new]))
    assert row.told == "host calls in the longest: clEnqueueReadBuffer 900.0 µs"
    assert why_view.time(0.03) == "0.030 µs"


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


def test_places_are_sorted_by_change_and_counted_where_hidden():
    why = verdicts.explained()
    found, hidden = why_view.rows(why)
    assert [(row.what, row.change) for row in found] == [
        ("gap longer", "+4.500 ms"),
        ("kernel longer", "+240.0 µs"),
    ]
    assert hidden == ""
    gone = msgspec.structs.replace(why.gaps[0], count=(1, 0), us=(9000.0, 0.0))
    grew_first, _ = why_view.rows(msgspec.structs.replace(why, gaps=[gone, *why.gaps]))
    assert [row.what for row in grew_first] == ["gap longer", "kernel longer", "gap gone"]
    many = msgspec.structs.replace(why, gaps=why.gaps * 30)
    found, hidden = why_view.rows(many)
    assert len(found) == 12
    assert hidden == "19 smaller changes (+81.24 ms in all) in report.json."


@pytest.mark.parametrize(
    ("after_ms", "said"),
    [
        (8.64, ""),
        (8.66, ""),
        (
            10.4,
            "The time of all kernels changed by +2.000 ms, of those that are listed by +240.0 µs: the others",
        ),
    ],
)
def test_what_kernels_take_longer_without_rows_is_told_beside_them(after_ms, said):
    why = msgspec.structs.replace(verdicts.explained(), kernel_ms=(8.4, after_ms))
    assert why_view.elsewhere(why).startswith(said)
    assert bool(why_view.elsewhere(why)) == bool(said)


def test_both_sides_are_drawn_on_one_scale_with_few_marks():
    drawn = lanes.draw(verdicts.explained())
    assert [round(side.share) for side in drawn.sides] == [60, 100]
    assert sum(len(lane.marks["start"]) for side in drawn.sides for lane in side.lanes) <= 2000
    legend = dict(drawn.legend)
    assert "changed" in legend
    assert "data" in legend
    for side in drawn.sides:
        for lane in side.lanes:
            assert max(lane.marks["end"]) <= 10 * drawn.length_us + 1


def test_a_number_at_the_edge_of_the_axis_is_left_out_rather_than_cut():
    why = msgspec.structs.replace(verdicts.explained(), after=verdicts.typical(stall_us=3330))
    drawn = lanes.draw(why)
    assert drawn.length_us == pytest.approx(10_000)
    assert drawn.ticks == [(0, "0"), (50, "5"), (100, "")]


def test_without_both_iterations_nothing_is_drawn():
    half = msgspec.structs.replace(verdicts.explained(), before=None)
    assert lanes.draw(half) is None
    assert lanes.draw(None) is None


def test_an_iteration_of_many_kernels_is_drawn_by_few_marks(tmp_path):
    program = af.Program()
    for _ in range(12):
        program.work(100_000)
        for _ in range(3000):
            program.launch("tiny", 1000)
        program.synchronize()
    profile = of(program, tmp_path)
    drawn = lanes.draw(explain([profile], [profile], ("baseline", "candidate")))
    assert sum(len(lane.marks["start"]) for side in drawn.sides for lane in side.lanes) <= 2000
    assert sum(drawn.sides[0].lanes[0].marks["count"]) == 3000


def captured(workload, folder):
    return [msgspec.structs.replace(run, capture=str(folder)) for run in workload.confirm_head]


def test_the_full_timelines_of_a_regression_lie_beside_the_report(tmp_path):
    workload = verdicts.regressed_by_time("a b/c")
    folder = tmp_path / "capture"
    folder.mkdir()
    loop(12).write(folder)
    workload.confirm_head = captured(workload, folder)
    page = write_reports(verdicts.build(workload, exit_code=1), tmp_path / "report")
    (written,) = (tmp_path / "report" / "timelines").iterdir()
    assert f'href="timelines/{written.name}"' in page.read_text()
    with gzip.open(written) as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "its capture is not here"),
        (b"", "its capture holds no device work"),
        (b"junk", "its capture cannot be read"),
    ],
)
def test_a_capture_without_anything_to_show_has_no_link_and_a_word_why(tmp_path, content, why):
    workload = verdicts.regressed_by_time()
    capture = tmp_path / "h-1-0.aiprof"
    if content is not None:
        capture.write_bytes(content)
    workload.confirm_head = captured(workload, capture)
    page = write_reports(verdicts.build(workload, exit_code=1), tmp_path / "report")
    assert f"none of head: {why}" in page.read_text()
    assert 'href="timelines/' not in page.read_text()
    assert not (tmp_path / "report" / "timelines").exists()


def test_a_timeline_that_cannot_be_written_is_a_usage_error(tmp_path):
    workload = verdicts.regressed_by_time()
    (tmp_path / "capture").mkdir()
    loop(12).write(tmp_path / "capture")
    workload.confirm_head = captured(workload, tmp_path / "capture")
    (tmp_path / "timelines").write_text("mine")
    with pytest.raises(UsageError, match="name another folder with --report"):
        write_reports(verdicts.build(workload, exit_code=1), tmp_path)


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
