from __future__ import annotations

import json
from pathlib import Path

import aiprof_file as af
import pytest
from html_page import Page

from ai_prof import cli
from ai_prof.report import diff_html
from ai_prof.report.diff_view import FLOORS, finding_lines
from ai_prof.timeline.diff import PARTS, diff
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace

CAPTURES = Path(__file__).parent / "captures"
EXTRA = 30_000


def program(
    *, work=200_000, kernels=(("gemm", 100_000), ("relu", 50_000)), iterations=20, size=1024, **options
):
    """A loop whose host computes, uploads, launches and waits; ns."""
    made = af.Program(**options)
    for _ in range(iterations):
        made.work(work)
        made.copy(af.HTOD, 10_000, size)
        for name, ns in kernels:
            made.launch(name, ns)
        made.synchronize()
    return made


def write(folder, name, made):
    (folder / name).mkdir()
    return made.write(folder / name).parent


@pytest.fixture
def compare(tmp_path, capsys):
    def run(a, b):
        paths = (write(tmp_path, "a", a), write(tmp_path, "b", b))
        assert cli.main(["diff", *map(str, paths), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def named(rows):
    return {row["name"]: row for row in rows}


def test_less_waiting_for_data_is_real_acceleration(compare):
    found = compare(program(work=400_000), program(work=150_000))
    assert found["kind"] == "accelerated"
    assert found["unit"] == "iteration"
    parts = named(found["parts"])
    assert parts["data"]["change_ms"] == pytest.approx(-0.25)
    assert parts["kernels"]["change_ms"] == pytest.approx(0)
    assert named(found["figures"])["iteration_ms"]["change"] == pytest.approx(-0.25)
    assert all(kernel["changes"] == [] for kernel in found["kernels"])
    assert not found["within_spread"]


def test_the_same_kernels_in_less_time_are_no_less_work(compare):
    found = compare(program(), program(kernels=(("gemm", 60_000), ("relu", 50_000))))
    assert found["kind"] == "faster"
    assert found["telling"] is None
    kernels = named(found["kernels"])
    assert kernels["gemm"]["changes"] == ["faster"]
    assert kernels["gemm"]["change_ms"] == pytest.approx(-0.04)
    assert kernels["relu"]["changes"] == []
    assert found["kernels"][0]["name"] == "gemm"


SLOWER = (("gemm", 100_000), ("relu", 50_000))
FASTER = (("gemm", 40_000), ("relu", 50_000))


def first_line(tmp_path, capsys, a, b):
    paths = [str(write(tmp_path, name, made)) for name, made in (("a", a), ("b", b))]
    assert cli.main(["diff", *paths]) == 0
    return capsys.readouterr().out.splitlines()[0]


def test_a_faster_machine_is_named_as_what_may_be_behind_it(tmp_path, capsys):
    line = first_line(tmp_path, capsys, program(), program(kernels=FASTER))
    assert line.startswith("Faster with no less work: iteration latency ")
    assert line.endswith(": the same operations, as many as before: they or the machine were faster.")


def test_fewer_synchronizes_are_no_less_work_and_are_named(tmp_path, capsys):
    def waiting(times, kernels):
        made = af.Program()
        for _ in range(20):
            made.work(200_000)
            for name, ns in kernels:
                made.launch(name, ns)
            for _ in range(times):
                made.synchronize()
        return made

    line = first_line(tmp_path, capsys, waiting(21, SLOWER), waiting(1, FASTER))
    assert line.startswith("Faster with no less work: iteration latency ")
    assert line.endswith(": the same kernels do it; synchronizes per iteration 21 → 1.")


def draining(kernel, times, **options):
    """A loop that waits for its loss, and some times more for a kernel in the midst of each iteration."""
    made = af.Program(**options)
    for _ in range(20):
        made.work(20_000)
        for name in ("gemm", "relu", "norm", "loss"):
            made.launch(name, 500_000)
            if name == kernel:
                for _ in range(times):
                    made.synchronize()
        made.synchronize()
    return made


def test_further_synchronizes_are_named_with_what_they_wait_after(tmp_path, capsys):
    paths = [write(tmp_path, name, draining("relu", times)) for name, times in (("a", 0), ("b", 4))]
    page = tmp_path / "diff.html"
    said = "Each iteration has 4 more synchronizes: cudaStreamSynchronize after relu (4)."
    assert cli.main(["diff", *map(str, paths), "--html", str(page)]) == 0
    assert said in capsys.readouterr().out.splitlines()
    assert said in page.read_text("utf-8")
    assert cli.main(["diff", *map(str, reversed(paths))]) == 0
    assert said.replace("more", "fewer") in capsys.readouterr().out.splitlines()
    assert cli.main(["diff", *map(str, paths), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["syncs"] == [
        {"call": "cudaStreamSynchronize", "follows": "relu", "before": 0, "after": 4}
    ]


def test_a_synchronize_that_moved_is_no_further_one(tmp_path, capsys):
    paths = [write(tmp_path, name, draining(name, 1)) for name in ("gemm", "relu")]
    assert cli.main(["diff", *map(str, paths)]) == 0
    assert "Each iteration has" not in capsys.readouterr().out


def test_places_of_two_levels_are_not_set_against_each_other(compare):
    """One names the call, the other cannot."""
    bare = draining("relu", 4, level="kernel", calls=False)
    assert compare(draining("relu", 0, level="api"), bare)["syncs"] == []


def test_a_small_finding_that_came_is_named_where_acting_on_it_returns_time(tmp_path, capsys):
    paths = [write(tmp_path, name, draining("relu", times)) for name, times in (("a", 0), ("b", 8))]
    assert cli.main(["diff", *map(str, paths)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Finding ")]
    assert told == ["Finding new: the host stops to wait for the device (info)."]


def test_less_work_names_what_there_is_less_of(tmp_path, capsys):
    before = (("gemm", 100_000), ("relu", 50_000), ("norm", 50_000))
    line = first_line(tmp_path, capsys, program(kernels=before), program(kernels=before[:2]))
    assert line.startswith("Faster by less work: iteration latency ")
    assert line.endswith("there is less to do; kernels per iteration 3 → 2.")


def test_smaller_launches_are_less_work(tmp_path, capsys):
    def launching(blocks, ns):
        made = af.Program()
        for _ in range(20):
            made.work(200_000)
            made.launch("gemm", ns, blocks=blocks)
            made.synchronize()
        return made

    line = first_line(tmp_path, capsys, launching(8, 100_000), launching(4, 50_000))
    assert line.startswith("Faster by less work: iteration latency ")
    assert line.endswith("there is less to do; threads launched per iteration 8 → 4.")


def test_other_kernels_are_not_called_less_work(tmp_path, capsys):
    line = first_line(tmp_path, capsys, program(), program(kernels=(("half", 40_000), ("relu", 50_000))))
    assert line.startswith("Faster with no less work: iteration latency ")
    assert line.endswith(": other kernels do it.")


@pytest.mark.parametrize(
    ("after", "kind"),
    [((("gemm", 900_000),), "less-work"), ((("gemm", 450_000), ("norm", 450_000)), "faster")],
    ids=["fewer", "faster"],
)
def test_less_time_in_kernels_is_no_real_acceleration_though_the_device_is_busier(compare, after, kind):
    """Idle time fell as well, and by a larger share of it; what was saved is kernels' time all the same."""
    found = compare(
        program(work=200_000, kernels=(("gemm", 900_000), ("norm", 900_000))),
        program(work=10_000, kernels=after),
    )
    assert named(found["figures"])["kernel_busy"]["change"] > 0.02
    parts = named(found["parts"])
    assert parts["kernels"]["change_ms"] == pytest.approx(-0.9)
    assert parts["data"]["change_ms"] == pytest.approx(-0.2, abs=0.01)
    assert found["kind"] == kind


def test_less_work_on_a_busier_device_says_where_the_time_was_saved(tmp_path, capsys):
    before = program(work=200_000, kernels=(("gemm", 900_000), ("norm", 900_000)))
    line = first_line(tmp_path, capsys, before, program(work=10_000, kernels=(("gemm", 900_000),)))
    assert line.startswith("Faster by less work: iteration latency ")
    assert line.endswith(
        ": most of the time saved was kernels at work, there is less to do; kernels per iteration 2 → 1."
    )


def test_no_count_that_fell_stands_beside_slower(tmp_path, capsys):
    line = first_line(tmp_path, capsys, program(), program(work=900_000, kernels=(("gemm", 100_000),)))
    assert line.startswith("Slower: iteration latency ")
    assert line.endswith(" pts).")


def test_filled_idle_time_gains_nothing(compare):
    # 100 us of the host's work give way to 100 us more of kernels.
    busier = program(work=100_000, kernels=(("gemm", 200_000), ("relu", 50_000)))
    found = compare(program(work=200_000), busier)
    assert found["kind"] == "idle-filled"
    assert named(found["figures"])["kernel_busy"]["change"] > 0.2


def test_added_removed_and_repeated_kernels_are_named(compare):
    before = program(kernels=(("gemm", 100_000), ("tanh", 20_000)))
    after = program(kernels=(("gemm", 100_000), ("gelu", EXTRA), ("gemm", 100_000)))
    found = compare(before, after)
    assert found["kind"] == "slower"
    changes = {name: kernel["changes"] for name, kernel in named(found["kernels"]).items()}
    assert changes == {"gemm": ["more often"], "gelu": ["added"], "tanh": ["removed"]}
    assert named(found["structure"])["kernels"] == {
        "name": "kernels",
        "before": 2,
        "after": 3,
        "constant": True,
    }


def test_tile_sizes_do_not_make_another_kernel(compare):
    before = program(kernels=(("void gemm<128, 64>(float*)", 100_000),))
    found = compare(before, program(kernels=(("void gemm<256, 32>(float*)", 100_000),)))
    assert found["kind"] == "unchanged"
    assert [kernel["changes"] for kernel in found["kernels"]] == [[]]


def test_a_capture_equals_itself():
    for path in sorted(CAPTURES.glob("*.aiprof")):
        trace = open_trace(path)
        found = diff(trace, trace, FLOORS)
        assert found.kind == "unchanged"
        assert all(figure.change in {0, None} for figure in found.figures)
        assert not any(kernel.changes or kernel.change_ms for kernel in found.kernels)
        assert found.findings == []
        assert found.cautions == []


def test_parts_are_the_whole_and_agree_with_the_summary():
    paths = [CAPTURES / f"h200_torch_{name}.aiprof" for name in ("decode", "train")]
    traces = [open_trace(path) for path in paths]
    found = diff(*traces, FLOORS)
    keys = zip(("before_share", "after_share"), ("before_ms", "after_ms"), strict=True)
    assert [part.name for part in found.parts] == list(PARTS)
    for (share, ms), trace in zip(keys, traces, strict=True):
        (device,) = summarise(trace).devices
        assert sum(getattr(part, share) for part in found.parts) == pytest.approx(1)
        starts = device.iterations.boundaries_ns
        counted = sum(1 for start in starts if start >= starts[-1] - device.window_ns) - 1
        whole = device.window_ns / counted / 1e6
        assert sum(getattr(part, ms) for part in found.parts) == pytest.approx(whole)
        by_name = {part.name: getattr(part, share) for part in found.parts}
        assert by_name["kernels"] == pytest.approx(device.kernel_busy)
        assert {cause: by_name[cause] for cause in device.gap_causes} == pytest.approx(device.gap_causes)
    kernel_ms = sum(kernel.after.ms for kernel in found.kernels if kernel.after)
    (train,) = summarise(traces[1]).devices
    assert kernel_ms == pytest.approx(train.kernel_mean_us * train.kernel_count / 1000 / 10)


def test_without_iterations_only_shares_compare(compare):
    once = af.Program()
    for name in ("conv", "relu", "pool", "norm", "gemm", "loss"):
        once.launch(name, 50_000)
        once.work(20_000)
    found = compare(once, program())
    assert (found["kind"], found["unit"]) == ("unknown", "window")
    assert sum(part["before_share"] for part in found["parts"]) == pytest.approx(1)
    assert found["structure"] == []
    assert any("no iterations" in caution for caution in found["cautions"])


def test_what_makes_two_captures_hard_to_compare_is_said(compare):
    lossy = program(level="kernel", calls=False)
    lossy.loss(af.KERNEL, 40, budget=3)
    cautions = compare(program(level="api"), lossy)["cautions"]
    assert any("level api, B with kernel" in caution for caution in cautions)
    assert any(caution.startswith("B: kernel: 3 records lost") for caution in cautions)


def test_few_iterations_are_said(compare):
    cautions = compare(program(), program(iterations=4))["cautions"]
    assert cautions == ["B has no more than 4 iterations"]


def test_spread_that_hides_the_change_is_said(tmp_path, capsys):
    def uneven(extra):
        made = af.Program()
        for i in range(40):
            made.work(200_000 + 100_000 * (i % 4) + extra)
            made.copy(af.HTOD, 10_000)
            made.launch("gemm", 100_000)
            made.synchronize()
        return made

    paths = [write(tmp_path, name, uneven(extra)) for name, extra in (("a", 0), ("b", 40_000))]
    assert cli.main(["diff", *map(str, paths)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Perhaps slower: ")
    assert "may be chance" in text


def test_text_gives_the_verdict_and_its_reason_first(tmp_path, capsys):
    paths = [write(tmp_path, name, program(work=work)) for name, work in (("a", 400_000), ("b", 150_000))]
    assert cli.main(["diff", *map(str, paths)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Real acceleration: iteration latency ")
    assert "waiting for data -0.250 ms" in lines[1]


def test_no_change_is_not_called_chance(tmp_path, capsys):
    paths = [write(tmp_path, name, program()) for name in "ab"]
    page = tmp_path / "page.html"
    assert cli.main(["diff", *map(str, paths), "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("No change worth naming: ")
    assert "may be chance" not in text
    assert "may be chance" not in page.read_text()


def test_kernels_that_differ_in_their_middle_stay_apart_in_a_file(tmp_path, capsys):
    kernels = [
        (f"sm80_xmma_gemm_f32f32_f32f32_f32_{kind}_tilesize_execute_kernel__5x_cublas", 50_000)
        for kind in "nt"
    ]
    longer = [(name, 2 * ns) for name, ns in kernels]
    paths = [write(tmp_path, name, program(kernels=made)) for name, made in (("a", kernels), ("b", longer))]
    assert cli.main(["diff", *map(str, paths)]) == 0
    rows = [
        line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("slower: ")
    ]
    assert len(set(rows)) == 2


def test_means_and_medians_are_told_apart(tmp_path, capsys):
    """An iteration in ten waits 2 ms for its data: the mean shows it, and the median does not."""

    def uneven(extra):
        made = af.Program()
        for i in range(40):
            made.work(200_000 + 25_000 * (i % 2) + (extra if i % 10 == 5 else 0))
            made.copy(af.HTOD, 10_000)
            made.launch("gemm", 100_000)
            made.synchronize()
        return made

    paths = [str(write(tmp_path, name, uneven(extra))) for name, extra in (("a", 0), ("b", 2_000_000))]
    assert cli.main(["diff", *paths]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "What changed most of the mean iteration: idle: waiting for data +0.205 ms."
    heads = [line.split("  ")[0] for line in lines]
    assert heads.index("Time of an iteration (mean)") < heads.index("Figure (per iteration: median)")


def test_times_are_written_as_in_the_summary_and_typeset_on_the_page(tmp_path, capsys):
    kernels = (("gemm", 1_500_000), ("relu", 50_000))
    path = str(write(tmp_path, "a", program(kernels=kernels)))
    other = str(write(tmp_path, "b", program(work=100_000)))
    page = tmp_path / "diff.html"
    assert cli.main(["diff", path, other, "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "iteration latency 1.769 ms → 269.0 us" in text
    assert "1 x 1.500 ms" in text
    assert "1 x 100.0 us" in text
    assert "µ" not in text
    assert "269.0\N{NO-BREAK SPACE}µs" in page.read_text("utf-8")
    assert " us" not in page.read_text("utf-8").partition("</style>")[2]


def test_no_change_has_no_sign_of_less(tmp_path, capsys):
    paths = [str(write(tmp_path, f"{work}", program(work=work))) for work in (100_000, 99_900)]
    assert cli.main(["diff", *paths]) == 0
    text = capsys.readouterr().out
    assert "+0.000 ms" in text
    assert "-0.000 ms" not in text


def test_other_programs_are_recognised(compare):
    found = compare(program(), program(kernels=(("sort", 100_000),)))
    assert any("no kernel is in both" in caution for caution in found["cautions"])


@pytest.mark.parametrize("work", [0, 200_000, 900_000], ids=["faster", "as fast", "slower"])
def test_other_kernels_on_other_data_are_no_gain_and_no_loss(tmp_path, capsys, work):
    other = program(work=work, kernels=(("sort", 100_000), ("scan", 40_000)), size=1 << 20)
    line = first_line(tmp_path, capsys, program(), other)
    assert line.startswith("Not the same work: iteration latency ")
    assert line.endswith(
        ": no kernel is in both, and they copy other amounts of data; "
        "bytes copied per iteration 1.024 kB → 1.049 MB."
    )


def test_a_kernel_in_common_that_takes_no_time_makes_no_common_work(compare):
    before = program(kernels=(("gemm", 100_000), ("fill", 2_000)))
    after = program(kernels=(("sort", 100_000), ("fill", 2_000)), size=1 << 20)
    found = compare(before, after)
    assert found["kind"] == "other-work"
    assert not any("in both" in caution for caution in found["cautions"])


def test_a_batch_of_another_size_is_the_same_work(compare):
    found = compare(
        program(size=1 << 20), program(kernels=(("gemm", 50_000), ("relu", 25_000)), size=1 << 19)
    )
    assert found["kind"] == "less-work"


def test_findings_that_went_are_named(compare):
    found = compare(program(work=400_000), program(work=0, kernels=(("gemm", 900_000),)))
    changes = {f["id"]: (f["before"], f["after"]) for f in found["findings"]}
    assert changes["gap-data"] == ("critical", None)


@pytest.mark.parametrize("cut", ["A", "B"])
def test_what_a_cut_capture_could_not_show_is_neither_new_nor_gone(cut, tmp_path):
    """Cut where the host's calls would begin: most gaps have no cause then."""
    whole = CAPTURES / "h200_torch_decode.aiprof"
    part = tmp_path / "cut.aiprof"
    part.write_bytes(whole.read_bytes()[: int(0.7 * whole.stat().st_size)])
    paths = [part, whole] if cut == "A" else [whole, part]
    lines = finding_lines(diff(*map(open_trace, paths), FLOORS))
    doubt = f"is not known, since {cut} lacks records"
    launch, unknown = "the host cannot launch work fast enough", "idle time whose cause was not recorded"
    in_a, in_b = (unknown, launch) if cut == "A" else (launch, unknown)
    assert set(lines) == {
        f"in A alone: {in_a} (critical); whether it is gone {doubt}",
        f"in B alone: {in_b} (critical); whether it is new {doubt}",
        f"{'gone' if cut == 'A' else 'new'}: the capture is incomplete (warning)",
    }


def test_a_capture_without_host_calls_could_not_show_their_findings(compare):
    found = compare(program(work=400_000), program(work=400_000, level="kernel", calls=False))
    changes = {f["id"]: (f["after"], f["lacking"]) for f in found["findings"]}
    assert changes["gap-data"] == (None, ["B"])


def test_a_capture_without_gpu_work_is_exit_3(tmp_path, capsys):
    a, b = write(tmp_path, "a", program()), write(tmp_path, "b", af.Program())
    assert cli.main(["diff", str(a), str(b)]) == 3
    assert capsys.readouterr().err.startswith("ai-prof: B (")
    assert cli.main(["diff", str(a), str(tmp_path / "absent")]) == 2


def test_the_page_is_whole_and_fetches_nothing(tmp_path, capsys):
    hostile = program(kernels=(("<script>alert(1)</script>\x00", 70_000),))
    paths = [write(tmp_path, name, made) for name, made in (("a", program()), ("b", hostile))]
    target = tmp_path / "diff.html"
    assert cli.main(["diff", *map(str, paths), "--html", str(target)]) == 0
    assert "wrote" in capsys.readouterr().err
    page = Page(target.read_text())
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    links = [attrs[key] for _, attrs in page.tags for key in ("src", "href", "xlink:href") if key in attrs]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert tags.count("svg") == 1


def test_the_page_calls_a_cause_what_its_table_calls_it(tmp_path):
    traces = [open_trace(write(tmp_path, name, program())) for name in ("a", "b")]
    page = diff_html.render(diff(*traces, FLOORS))
    assert "launch (idle: the host in driver calls)" in page
    assert page.count("idle: the host blocked in synchronizes") == 2


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a note"])
def test_what_is_no_capture_is_told_without_an_option_that_diff_lacks(tmp_path, capsys, what):
    named = tmp_path / what
    if what == "an empty folder":
        named.mkdir()
    elif what == "a note":
        named.write_text("no capture")
    assert cli.main(["diff", str(named), str(named)]) == 2
    told = capsys.readouterr().err
    assert "a capture directory or .aiprof file" in told
    assert "--input" not in told


def test_pages_of_any_kind_render(tmp_path):
    once = af.Program()
    for name in ("conv", "relu", "pool"):
        once.launch(name, 50_000)
    traces = [open_trace(write(tmp_path, name, made)) for name, made in (("a", program()), ("b", once))]
    for a in traces:
        for b in traces:
            page = Page(diff_html.render(diff(a, b, FLOORS)))  # fails on a tag that is not closed
            assert [tag for tag, _ in page.tags].count("h1") == 1
