from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import aiprof_file as af
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof import cli
from ai_prof.timeline.advice import ACTIONS, HELD_ALONE, TITLES
from ai_prof.timeline.advice_hip import in_words_of_hip
from ai_prof.timeline.advice_opencl import OPENCL_ACTIONS
from ai_prof.timeline.advice_xla import XLA_ACTIONS
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.findings import find
from ai_prof.timeline.gaps import PLACES, placements
from ai_prof.timeline.operations import busy_devices
from ai_prof.timeline.summary import summarise
from ai_prof.timeline.tag import tag
from ai_prof.trace.model import CallKind
from ai_prof.trace.open import open_trace
from ai_prof.trace.readers import native

CAPTURES = Path(__file__).parent / "captures"
ORDER = ("critical", "warning", "info")


def loop(iterations=20, *, work=0, uploads=(), kernels=(100_000,), syncs=True, **header):
    """A program whose host computes, uploads, launches and waits, again and again; all in ns."""
    program = af.Program(**header)
    for _ in range(iterations):
        program.work(work)
        for ns in uploads:
            program.copy(af.HTOD, ns)
        for k, ns in enumerate(kernels):
            program.launch(f"k{k}", ns)
        if syncs:
            program.synchronize()
    return program


def found_in(program, folder):
    trace = native.read([program.write(folder)])
    return find(trace, [device_timeline(trace, device) for device in busy_devices(trace)])


def by_id(program, folder):
    return {finding.id: finding for finding in found_in(program, folder)}


def test_every_finding_has_a_title_and_actions():
    own = {"lost-records", "capture-notes"}  # their actions are what lost them, and the notes
    assert ACTIONS.keys() | own == TITLES.keys()
    assert all(ACTIONS.values())


def test_advice_on_opencl_names_nothing_of_cuda_or_torch(tmp_path):
    torch = re.compile(r"torch|CUDA|\.item|pin_memory|non_blocking|graph|stream|NVTX|\bncu\b")
    assert OPENCL_ACTIONS.keys() < ACTIONS.keys()
    assert not [each for actions in OPENCL_ACTIONS.values() for each in actions if torch.search(each)]
    program = loop(kernels=(3_000,) * 30)
    program.rows = [row for row in program.rows if row[0] != af.DEVICE]
    program.device(0, "GPU", kind=2)
    found = by_id(program, tmp_path)
    assert found["small-kernels"].actions == list(OPENCL_ACTIONS["small-kernels"])
    assert "clFinish" in found["frequent-syncs"].actions[0]
    assert not [a for f in found.values() for a in f.actions if "torch" in a]


def test_opencl_programs_without_iterations_are_told_of_no_ranges(tmp_path):
    program = af.Capture()
    program.device(0, "CPU", kind=2)
    program.kernel("once", 1_000, 900_000)
    assert not [a for f in found_in(program, tmp_path) for a in f.actions if "NVTX" in a]
    assert "no-iterations" in by_id(program, tmp_path)


def test_one_command_queue_may_wait_for_user_events_or_for_its_cpu(tmp_path):
    program = af.Capture()
    program.device(0, "CPU", kind=2)
    program.clock(1, 1, 1)
    for i in range(20):
        at = 10_000_000 + i * 3_000_000
        program.call("launch", at - 2_500_000, at - 2_499_000, correlation=i + 1)
        program.kernel("k", at, at + 1_000_000, correlation=i + 1)
    assert by_id(program, tmp_path)["gap-wait"].actions == list(OPENCL_ACTIONS["gap-wait"])


def test_advice_on_what_xla_compiled_is_of_jax(tmp_path):
    torch = re.compile(r"torch|\.item|\.cpu|pin_memory|num_workers|non_blocking|empty_cache|foreach|stream")
    assert XLA_ACTIONS.keys() < ACTIONS.keys()
    assert not [each for actions in XLA_ACTIONS.values() for each in actions if torch.search(each)]

    def advised(folder, names):
        program = af.Program()
        for _ in range(20):
            for name in names:
                program.launch(name, 3_000)
            program.synchronize()
        (tmp_path / folder).mkdir()
        return [a for f in found_in(program, tmp_path / folder) for a in f.actions]

    of_xla = advised("xla", ["loop_add_fusion_1", "gemm_fusion_dot_6", "sm90_xmma_gemm_f32f32"])
    assert any("jax.jit" in action for action in of_xla)
    assert not list(filter(torch.search, of_xla))
    beside = ["loop_add_fusion_1", "void at::native::fill<float>(float*)"]
    for other in (beside, ["my_fusion(float*)", "triton_poi_fused_add_0"]):
        assert any("torch.compile" in action for action in advised(other[0], other))


def test_waiting_for_data_comes_before_the_waits_that_show_it(tmp_path):
    # The host reads a result back and then loads the next batch: what it waited for the device is more
    # than the loading, but the loading is the cause.
    program = loop(work=300_000, uploads=(20_000,), kernels=(500_000,))
    found = found_in(program, tmp_path)
    assert (found[0].id, found[0].severity) == ("gap-data", "critical")
    assert found[0].evidence["placement"]["start"] == pytest.approx(1)
    syncs = next((f for f in found if f.id == "frequent-syncs"), None)
    assert syncs is None or syncs.severity != "critical"


def test_waits_that_drain_the_device_are_the_cause_where_the_host_has_time(tmp_path):
    # Launching takes 4 us and the kernel 15: without the synchronize the host would be far ahead.
    found = found_in(loop(kernels=(15_000,), iterations=50), tmp_path)
    assert (found[0].id, found[0].severity) == ("frequent-syncs", "critical")


@settings(max_examples=25)
@given(
    work=st.sampled_from([0, 50_000, 400_000]),
    uploads=st.lists(st.sampled_from([5_000, 200_000]), max_size=2),
    kernels=st.lists(st.sampled_from([2_000, 15_000, 60_000, 500_000]), min_size=1, max_size=6),
    syncs=st.booleans(),
)
def test_order_and_bounds_hold_for_any_program(tmp_path, work, uploads, kernels, syncs):
    program = loop(12, work=work, uploads=uploads, kernels=kernels, syncs=syncs)
    trace = native.read([program.write(tmp_path)])
    timeline = device_timeline(trace, 0)
    found = find(trace, [timeline])
    ranks = [ORDER.index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
    iteration_ms = timeline.busy.window / timeline.iterations_in_window / 1e6
    assert all(
        0 <= finding.saves_ms <= iteration_ms + 1e-9 for finding in found if finding.id != "hot-kernel"
    )
    assert len({finding.id for finding in found}) == len(found)


def test_utilization_below_a_busy_timeline_is_a_question_of_windows(tmp_path):
    program = loop(uploads=(100_000,), kernels=(150_000_000,))
    for i in range(3):
        program.sample(2_200_000_000 + i * 500_000_000, 20)
    finding = by_id(program, tmp_path)["utilization-below-timeline"]
    assert finding.evidence["nvml_utilization"] == pytest.approx(0.2)
    assert finding.evidence["device_busy"] > 0.85
    assert "10 s" in finding.actions[0]
    assert "ncu" in finding.actions[1]


@pytest.mark.parametrize(
    ("reasons", "severity", "said"),
    [
        ([4] * 10, "info", "Power cap in 100% of 10 samples, SM clock 1500 to 1500 MHz. "),
        ([4] * 4 + [0] * 6, None, ""),
        ([4] * 2, None, ""),
        ([0] * 9 + [0x40], "warning", "Hardware thermal slowdown in 10% of 10 samples"),
    ],
)
def test_a_clock_that_was_held_down_is_told(tmp_path, reasons, severity, said):
    program = loop(kernels=(900_000,))
    for i, each in enumerate(reasons):
        program.sample(1_003_000_000 + i * 1_000_000, 99, reasons=each)
    finding = by_id(program, tmp_path).get("throttled")
    assert (finding.severity if finding else None) == severity
    assert finding is None or finding.actions[0].startswith(said)


def test_few_gaps_and_little_computing_are_copies(tmp_path):
    finding = by_id(loop(uploads=(300_000,), kernels=(600_000,)), tmp_path)["unoverlapped-copies"]
    assert finding.severity == "critical"
    assert finding.evidence["streams"] == 1


def test_the_time_of_memsets_is_none_of_copies(tmp_path):
    program = af.Program()
    for _ in range(20):
        program.copy(af.HTOD, 1_000)
        program.copy(6, 100_000)  # a memset
        program.launch("gemm", 600_000)
        program.synchronize()
    assert by_id(program, tmp_path).keys().isdisjoint({"unoverlapped-copies", "device-copies"})


@pytest.mark.parametrize(("pageable_ns", "pinned"), [(300_000, False), (50_000, True)])
def test_memory_that_most_copies_find_pageable_is_to_be_pinned(tmp_path, pageable_ns, pinned):
    program = af.Program()
    for _ in range(20):
        program.copy(af.HTOD, pageable_ns, pageable=True)
        program.copy(af.HTOD, 100_000)
        program.launch("k", 300_000)
        program.synchronize()
    finding = by_id(program, tmp_path)["unoverlapped-copies"]
    share = pageable_ns / (pageable_ns + 100_000)
    assert finding.evidence["pageable_share"] == pytest.approx(share)
    assert finding.actions[0].startswith("Pin the host's memory") != pinned
    assert pinned or f"for {share:.0%} of their time" in finding.actions[0]


def test_a_fed_device_is_sent_to_hardware_counters(tmp_path):
    finding = by_id(loop(kernels=(100_000, 800_000)), tmp_path)["hot-kernel"]
    assert finding.evidence["kernel"] == "k1"
    assert finding.evidence["share_of_kernel_time"] == pytest.approx(8 / 9)
    assert finding.evidence["nvml_memory_utilization"] is None
    assert "ncu" in finding.actions[0]


@pytest.mark.parametrize(("streams", "expected"), [((7,), "gap-device"), ((7, 8), "gap-wait")])
def test_one_stream_waits_for_nothing_but_the_device(tmp_path, streams, expected):
    # Launched in time, and started 50 us late.
    capture = af.Capture()
    capture.device()
    capture.clock(1, 1, 1)
    for i in range(20):
        stream, at = streams[i % len(streams)], 10_000_000 + i * 150_000
        capture.call("launch", at - 300_000, at - 299_000, correlation=i + 1)
        capture.kernel("k", at, at + 100_000, stream=stream, correlation=i + 1)
    trace = native.read([capture.write(tmp_path)])
    timelines = [device_timeline(trace, 0, "span")]
    assert expected in [finding.id for finding in find(trace, timelines)]
    assert tag(trace, timelines) == ("launch-bound" if len(streams) == 1 else "sync-bound")


def test_a_host_that_is_busy_elsewhere_is_host_bound(tmp_path):
    program = af.Program()
    for _ in range(20):
        program.launch("first", 10_000)
        program.work(500_000)
        program.launch("second", 10_000)
        program.synchronize()
    trace = native.read([program.write(tmp_path)])
    assert tag(trace, [device_timeline(trace, 0)]) == "host-bound"


@pytest.mark.parametrize(("every", "said"), [(3, True), (1, False), (20, False)])
def test_iterations_that_load_code_and_take_longer_are_told(tmp_path, every, said):
    """As an operator does that plans anew for each new length."""
    program = af.Program()
    for i in range(40):
        program.launch("first", 100_000)
        if i % every == 0:
            program.call("cuLibraryLoadData", program.now, program.now + 60_000, kind=LOAD_CALL)
            program.work(5_000_000)
        program.launch("second", 200_000)
        program.synchronize()
    finding = by_id(program, tmp_path).get("code-loads")
    assert (finding is not None) == said
    if finding:
        assert finding.evidence["share"] == pytest.approx(1 / 3, abs=0.02)
        assert finding.evidence["with_ms"] - finding.evidence["without_ms"] == pytest.approx(4.9, abs=0.1)
        assert finding.saves_ms == pytest.approx(4.9 * finding.evidence["share"], rel=0.05)


LOAD_CALL = 7
ALLOC_CALL = 4


def test_calls_that_set_up_are_no_launches(tmp_path):
    program = af.Program()
    for _ in range(20):
        program.call("cudaMalloc", program.now, program.now + 400_000, kind=ALLOC_CALL)
        program.work(400_000)
        program.launch("k", 100_000)
        program.synchronize()
    found = found_in(program, tmp_path)
    assert (found[0].id, found[0].severity) == ("setup-calls", "critical")
    assert "gap-launch" not in [finding.id for finding in found]


def test_a_blocking_copy_is_a_wait_without_a_synchronize(tmp_path):
    # One call copies, and returns 900 us after the copy has ended; only then does the next kernel follow.
    capture = af.Capture()
    capture.device()
    capture.clock(1, 1, 1)
    for i in range(10):
        at = 10_000_000 + i * 1_000_000
        capture.call("cudaMemcpy", at, at + 950_000, kind=af.COPY, correlation=2 * i + 1)
        capture.memory(af.DTOH, at + 10_000, at + 50_000, size=64, correlation=2 * i + 1)
        capture.call("launch", at + 951_000, at + 953_000, correlation=2 * i + 2)
        capture.kernel("k", at + 955_000, at + 1_005_000, correlation=2 * i + 2)
    found = found_in(capture, tmp_path)
    assert (found[0].id, found[0].severity) == ("frequent-syncs", "critical")
    assert found[0].saves_ms == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize("graphs", [True, False])
def test_what_is_in_graphs_is_not_told_to_use_graphs(tmp_path, graphs):
    program = af.Program()
    for _ in range(20):
        if graphs:
            program.graph_launch(["a", "b"], 2_000)
        else:
            program.launch("a", 2_000)
            program.launch("b", 2_000)
        program.work(20_000)
        program.synchronize()
    finding = by_id(program, tmp_path)["small-kernels"]
    assert any("CUDA graphs" in action for action in finding.actions) != graphs


def test_small_kernels_that_never_wait_are_no_finding(tmp_path):
    program = af.Program()
    for _ in range(20):
        program.graph_launch(["a", "b", "c"] * 100, 8_000)
        program.synchronize()
    assert "small-kernels" not in by_id(program, tmp_path)


def test_copies_within_the_device_are_not_told_to_pin_memory(tmp_path):
    program = af.Program()
    for _ in range(20):
        program.copy(af.DTOD, 100_000)
        program.launch("k", 100_000)
        program.synchronize()
    found = by_id(program, tmp_path)
    assert "unoverlapped-copies" not in found
    assert not any("pinned" in action for action in found["device-copies"].actions)


def test_a_doubtful_period_is_said(tmp_path):
    trace = native.read([loop().write(tmp_path)])
    timeline = device_timeline(trace, 0)
    doubtful = replace(timeline, iterations=replace(timeline.iterations, confidence=0.6))
    assert "uncertain-iterations" not in [finding.id for finding in find(trace, [timeline])]
    finding = next(f for f in find(trace, [doubtful]) if f.id == "uncertain-iterations")
    assert finding.evidence["confidence"] == 0.6


def test_long_gaps_say_where_they_are_and_what_the_host_called(tmp_path):
    path = loop(work=300_000, uploads=(20_000,), kernels=(500_000,)).write(tmp_path)
    (device,) = summarise(open_trace(path)).devices
    starts = device.iterations.boundaries_ns
    for gap in device.longest_gaps:
        if gap.iteration is None:
            continue
        low, high = starts[gap.iteration], starts[gap.iteration + 1]
        assert low <= gap.start_ns < high
        assert gap.place == pytest.approx((gap.start_ns - low) / (high - low))
    longest = device.longest_gaps[0]
    # The synchronize returns 3 us after the kernel; the copy starts 2 us after its call of 4 us has returned,
    # and the host is launching again by then.
    expected = {"cudaMemcpyAsync": 0.004, "cudaStreamSynchronize": 0.003, "cudaLaunchKernel": 0.002}
    assert longest.calls_ms == pytest.approx(expected)
    assert {gap.placement for gap in device.longest_gaps} == {"start"}


def test_a_gap_is_placed_in_its_iteration(tmp_path):
    program = af.Program()
    for _ in range(12):
        program.iteration()
        program.copy(af.HTOD, 20_000)
        for k in range(30):
            program.work({1: 30_000, 15: 400_000, 29: 40_000}.get(k, 0))
            program.launch(f"k{k}", 10_000)
        program.synchronize()
        program.work(200_000)
    trace = native.read([program.write(tmp_path)])
    device = device_timeline(trace, 0)
    gaps = [int(start) for start in device.busy.gaps.start]
    for start, place in zip(gaps, placements(device).tolist(), strict=True):
        i = sum(begin <= start for begin in program.starts) - 1
        share = (start - program.starts[i]) / (program.starts[i + 1] - program.starts[i])
        if PLACES[place] == "start" and share >= 0.1:  # the wait for the next iteration
            assert start + 200_000 < program.starts[i + 1]
        else:
            assert PLACES[place] == ("start" if share < 0.1 else "middle" if share < 0.9 else "end")
    finding = next(f for f in find(trace, [device]) if f.id == "gap-host")
    assert finding.evidence["placement"] == pytest.approx({"start": 0, "middle": 1, "end": 0, "outside": 0})
    finding = next(f for f in find(trace, [device]) if f.id == "gap-data")
    assert finding.evidence["placement"]["start"] == pytest.approx(1)


def test_an_empty_capture_gets_advice(tmp_path, capsys):
    path = af.Program().write(tmp_path)
    (finding,) = summarise(open_trace(path)).findings
    assert finding.id == "no-device-work"
    assert len(finding.actions) == 4
    assert cli.main(["summary", "--input", str(path)]) == 3
    told = capsys.readouterr()
    assert told.out.startswith("1. No device work was recorded (critical). ")
    assert told.err.startswith("ai-prof: no device work was recorded: the program did none, or ")


@pytest.mark.parametrize(
    ("kind", "result", "first", "reason"),
    [
        (CallKind.LAUNCH, 0, "Start the capture with the program", "the driver gave no records"),
        (CallKind.LAUNCH, 700, "See whether the program came to its device work", "the program did none"),
        (CallKind.ALLOC, 0, "See whether the program came to its device work", "the program did none"),
    ],
)
def test_the_driver_is_suspected_only_where_device_work_was_asked_for(tmp_path, kind, result, first, reason):
    file = af.Capture()
    file.call("cuCall", 1_000, 2_000, kind=kind, result=result)
    summary = summarise(open_trace(file.write(tmp_path)))
    assert summary.findings[0].actions[0].startswith(first)
    assert reason in summary.reason


def test_a_trace_of_rocm_is_sent_to_no_tool_of_nvidia(tmp_path):
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 10 * i, "dur": 9.5,
         "args": {"device": 0, "stream": 0, "correlation": i}}
        for i in range(1, 200)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    for metadata, tool in (({"hip_runtime_version": 60443483}, "rocprof-compute"), ({}, "ncu")):
        path.write_text(json.dumps({**metadata, "traceEvents": kernels}))
        (hot,) = [f for f in summarise(open_trace(path)).findings if f.id == "hot-kernel"]
        assert f"hardware counters ({tool})" in hot.actions[0]


def test_nothing_of_nvidia_alone_is_left_in_the_words_of_hip():
    words = [in_words_of_hip(action) for actions in ACTIONS.values() for action in (*actions, HELD_ALONE)]
    assert not [each for each in words if re.search(r"\(ncu\)|CUDA_MODULE|cudaLaunch", each)]


def test_an_empty_trace_of_another_tool_gets_that_tools_advice(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    (finding,) = summarise(open_trace(path)).findings
    assert finding.id == "no-device-work"
    assert finding.actions == ["Profile again with ProfilerActivity.CUDA, over steps that use the GPU."]


def test_real_captures_are_told_apart():
    decode = summarise(open_trace(CAPTURES / "h200_torch_decode.aiprof")).findings
    assert [(f.id, f.severity) for f in decode[:2]] == [
        ("gap-launch", "critical"),
        ("small-kernels", "critical"),
    ]
    train = summarise(open_trace(CAPTURES / "h200_torch_train.aiprof")).findings
    assert all(finding.severity == "info" for finding in train)
    assert "hot-kernel" in [finding.id for finding in train]


def test_the_text_reads_without_a_glossary(tmp_path, capsys):
    path = loop(work=300_000, uploads=(20_000,), kernels=(500_000,)).write(tmp_path)
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert not any(name in text for name in ACTIONS)
    lines = text.splitlines()
    assert len(lines) <= 10
    assert "waiting for data" in lines[0]
    first = next(line for line in lines if line.startswith("1. "))
    assert first.startswith(
        "1. The device waits for input data at the start of iterations (critical, worth up"
    )


def test_the_text_names_no_remedy_twice(capsys):
    assert cli.main(["summary", "--input", str(CAPTURES / "h200_torch_decode.aiprof")]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line[:2] in {"1.", "2.", "3."}]
    assert len(steps) == 2
    assert len({line.split("). ", 1)[1] for line in steps}) == 2
