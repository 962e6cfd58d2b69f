from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import aiprof_file as af
import pytest

from ai_prof import cli

DEVICE_KEYS = [
    *("device", "uuid", "name", "rank", "window_ns", "window"),
    *("kernel_busy", "copy_only", "gap", "device_busy", "comm_exposed", "stream_concurrency"),
    *("kernel_count", "kernel_mean_us", "kernel_p50_us", "kernel_p95_us", "tiny_kernel_share"),
    *(
        "top_kernels",
        "memcpy_count",
        "memset_count",
        "copy_compute_overlap",
        "sync_count",
        "sync_blocked_ns",
        "syncs",
    ),
    *("streams", "structure", "iterations", "gap_causes", "sync_shadow", "gap_histogram", "longest_gaps"),
]


def loop(iterations=20, *, work=500_000, kernel=100_000, kernels=3, upload=20_000, calls=True):
    program = af.Program(calls=calls, rank=3)
    for _ in range(iterations):
        program.work(work)
        if upload:
            program.copy(af.HTOD, upload)
        for k in range(kernels):
            program.launch(f"k{k % 7}", kernel)
        program.synchronize()
    return program


def summary(capsys, folder, program, *options):
    path = program.write(folder)
    code = cli.main(["summary", "--input", str(path), "--json", *options])
    assert code == 0
    return json.loads(capsys.readouterr().out)


def ids(found):
    return [finding["id"] for finding in found["findings"]]


def test_json_has_the_documented_form(tmp_path, capsys):
    found = summary(capsys, tmp_path, loop())
    assert list(found) == ["schema", "source", "devices", "findings", "tag"]
    assert found["schema"] == "ai-prof/summary/1"
    assert list(found["source"]) == ["format", "files", "complete", "losses"]
    assert found["source"]["losses"]["kernel"] == {
        "captured": 60,
        "cupti_dropped": 0,
        "invalid_time": 0,
        "budget_dropped": 0,
    }
    (device,) = found["devices"]
    assert list(device) == DEVICE_KEYS
    assert list(device["structure"]) == ["kernels", "copies", "copy_bytes", "syncs", "graph_launches"]
    assert list(device["iterations"]) == [
        *("count", "median_ms", "p5_ms", "p95_ms", "boundaries_ns", "method", "confidence")
    ]
    assert list(device["gap_causes"]) == ["launch", "sync", "data", "host", "wait", "device", "unknown"]
    for finding in found["findings"]:
        assert list(finding) == ["id", "severity", "evidence", "saves_ms", "actions"]
        assert finding["severity"] in {"info", "warning", "critical"}
        assert finding["actions"]


def test_figures_agree_with_each_other(tmp_path, capsys):
    (device,) = summary(capsys, tmp_path, loop())["devices"]
    assert device["rank"] == 3
    assert device["window"] == "iterations"
    assert device["kernel_busy"] + device["copy_only"] + device["gap"] == pytest.approx(1)
    assert device["device_busy"] == pytest.approx(device["kernel_busy"] + device["copy_only"])
    assert sum(device["gap_causes"].values()) == pytest.approx(device["gap"])
    assert sum(device["gap_histogram"]["share"]) == pytest.approx(device["gap"])
    assert len(device["gap_histogram"]["share"]) == len(device["gap_histogram"]["edges_us"])
    assert sum(device["syncs"].values()) == device["sync_count"]
    assert device["iterations"]["count"] == len(device["iterations"]["boundaries_ns"]) == 20
    assert device["iterations"]["median_ms"] == pytest.approx(0.829)
    longest = device["longest_gaps"][0]
    assert longest["cause"] == "data"
    assert longest["length_ms"] == pytest.approx(0.509)
    assert (longest["before"], longest["after"]) == ("k2", "memcpy host to device")


def test_a_data_gap_comes_first(tmp_path, capsys):
    found = summary(capsys, tmp_path, loop())
    assert found["findings"][0]["id"] == "gap-data"
    assert found["findings"][0]["severity"] == "critical"
    assert found["findings"][0]["saves_ms"] == pytest.approx(0.5)
    assert found["tag"] == "data-bound"
    assert "short-capture" in ids(found)


def test_tiny_kernels_are_launch_bound(tmp_path, capsys):
    found = summary(capsys, tmp_path, loop(work=0, kernel=1_000, kernels=300, upload=1_000))
    assert found["tag"] == "launch-bound"
    assert ids(found)[:1] == ["gap-launch"]
    assert "small-kernels" in ids(found)


def test_a_fed_device_is_compute_bound(tmp_path, capsys):
    found = summary(capsys, tmp_path, loop(work=1_000, kernel=900_000))
    assert found["tag"] == "compute-bound"
    assert ids(found)[0] == "hot-kernel"


def test_copies_that_hide_behind_nothing(tmp_path, capsys):
    found = summary(capsys, tmp_path, loop(work=1_000, upload=900_000))
    assert found["tag"] == "copy-bound"
    assert "unoverlapped-copies" in ids(found)


def test_without_host_calls_the_cause_is_unknown(tmp_path, capsys):
    found = summary(capsys, tmp_path, loop(calls=False))
    assert found["devices"][0]["gap_causes"]["unknown"] == pytest.approx(found["devices"][0]["gap"])
    assert "gap-unknown" in ids(found)
    assert found["tag"] is None


def test_utilization_that_contradicts_the_timeline_is_named(tmp_path, capsys):
    assert "utilization-above-timeline" in ids(sampled(capsys, tmp_path, [100] * 3))


@pytest.mark.parametrize("samples", [[100], [100, 100], [0, 100, 0], [30, 100, 30]])
def test_a_few_odd_samples_contradict_nothing(tmp_path, capsys, samples):
    found = ids(sampled(capsys, tmp_path, samples))
    assert not any(each.startswith("utilization-") for each in found)


def test_a_sample_of_what_came_before_the_window_contradicts_nothing(tmp_path, capsys):
    found = ids(sampled(capsys, tmp_path, [100] * 9, first=100_000_000, apart=90_000_000))
    assert not any(each.startswith("utilization-") for each in found)


def sampled(capsys, folder, samples, *, first=1_200_000_000, apart=500_000_000):
    """The summary of a loop of 3 s, half idle, with samples from some ns after its start on."""
    program = loop(iterations=60, work=30_000_000, kernel=7_000_000)
    for i, utilization in enumerate(samples):
        program.sample(1_000_000_000 + first + i * apart, utilization)
    return summary(capsys, folder, program)


def lost(capsys, folder, *, meta=(), **counts):
    program = loop()
    program.loss(af.KERNEL, 60, **counts)
    program.meta(**dict(meta))
    found = summary(capsys, folder, program)
    assert ids(found)[0] == "lost-records"
    assert "incomplete-capture" not in ids(found)
    return found["findings"][0]


def test_losses_come_before_everything(tmp_path, capsys):
    finding = lost(capsys, tmp_path, budget=7)
    assert finding["evidence"]["lost"] == {"kernel": 7}
    assert finding["evidence"]["budget_dropped"] == 7


@pytest.mark.parametrize(
    ("counts", "meta", "remedy"),
    [
        ({"budget": 7}, {}, "AI_PROF_BUFFER_MB"),
        ({"cupti": 7}, {}, "AI_PROF_BUFFER_MB"),
        ({"invalid": 7}, {}, "AI_PROF_GRAPHS"),
        ({"budget": 7}, {"write_errors": 1}, "free some space"),
    ],
)
def test_the_remedy_fits_what_lost_the_records(tmp_path, capsys, counts, meta, remedy):
    (action,) = lost(capsys, tmp_path, meta=meta, **counts)["actions"]
    assert remedy in action


def test_what_a_reader_warns_of_is_in_the_json_and_no_fault_of_the_capture(tmp_path, capsys):
    program = af.Capture()
    program.device()
    program.kernel("k", 1_000, 2_000)
    found = summary(capsys, tmp_path, program)
    assert found["source"]["complete"]
    assert ids(found)[0] == "capture-notes"
    assert "no clock was calibrated" in found["findings"][0]["evidence"]["warnings"][0]


def test_names_command_no_terminal(tmp_path, capsys):
    program = af.Program()
    program.device(0, "GPU\x1b[31m\x9b2J")
    for _ in range(3):
        program.launch("evil\x1b]0;kernel\nDevice 7 is fine.", 5_000_000)
    path = program.write(tmp_path)
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert not {c for c in text if c < " "} - {"\n"}
    assert "\x9b" not in text
    assert not any(line.startswith("Device 7") for line in text.splitlines())
    assert cli.main(["diff", str(path), str(path)]) == 0
    assert not {c for c in capsys.readouterr().out if c < " "} - {"\n"}


def test_absurd_times_are_added_up_without_overflow(tmp_path, capsys):
    program = af.Capture()
    program.device()
    for i in range(6):
        program.memory(af.HTOD, 1 + i, (1 << 62) + i, size=1)
    program.kernel("k", 5, 6)
    assert "unoverlapped-copies" in ids(summary(capsys, tmp_path, program))


def test_the_span_can_be_forced(tmp_path, capsys):
    (device,) = summary(capsys, tmp_path, loop(), "--window", "span")["devices"]
    assert device["window"] == "span"
    assert device["kernel_count"] == 60


def test_text_names_the_cause_first_in_few_lines(tmp_path, capsys):
    path = loop().write(tmp_path)
    assert cli.main(["summary", "--input", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    assert "idle 61.4% of the time: waiting for data 60.3%" in lines[0]


@pytest.mark.parametrize("name", ["loader_0", "search", "wait"])
def test_the_causes_of_the_first_line_add_up_to_the_idle_time(name, tmp_path, capsys):
    packed = Path(__file__).parent / "captures" / "h200" / f"{name}.aiprof.xz"
    (tmp_path / "h-1-0.aiprof").write_bytes(lzma.decompress(packed.read_bytes()))
    assert cli.main(["summary", "--input", str(tmp_path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    idle, *causes = (float(share) for share in re.findall(r"([\d.]+)%", first))
    assert sum(causes) == pytest.approx(idle, abs=0.25)  # each is rounded to 0.1
    assert ("others" in first) == (name != "loader_0")


def test_text_says_which_figure_of_the_iterations_it_gives(tmp_path, capsys):
    assert cli.main(["summary", "--input", str(loop().write(tmp_path))]) == 0
    told = "Seen over 19 of 20 iterations of 829 us (median; p5 829 us, p95 829 us), without "
    assert f"{told}the last, which nothing ends." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (999_600_000, "iterations of 1 s (median; p5 1 s, p95 1 s)"),
        (1_769_700_000, "iterations of 1.77 s (median; p5 1.77 s, p95 1.77 s)"),
        (290_000_000, "iterations of 290.3 ms (median; p5 290.3 ms, p95 290.3 ms)"),
        (670_300, "iterations of 999 us (median; p5 999 us, p95 999 us)"),
        (671_000, "iterations of 1 ms (median; p5 1 ms, p95 1 ms)"),
    ],
)
def test_text_gives_times_in_the_unit_that_suits_them(tmp_path, capsys, work, told):
    assert cli.main(["summary", "--input", str(loop(work=work).write(tmp_path))]) == 0
    assert told in capsys.readouterr().out


def test_text_of_two_long_kinds_of_iterations_has_no_exponent(tmp_path, capsys):
    program = af.Program()
    for i in range(20):
        program.work(3_500_000_000 if i % 2 else 1_500_000_000)
        program.copy(af.HTOD, 20_000)
        for k in range(3):
            program.launch(f"k{k}", 100_000)
        program.synchronize()
    assert cli.main(["summary", "--input", str(program.write(tmp_path))]) == 0
    assert re.search(r"take 3\.5 s, the others 1\.5 s\.", capsys.readouterr().out)


def marked(steps, work, kernels, ns):
    """Steps that PyTorch's profiler marks: host work of `work` ns, then as many kernels of `ns`."""
    program = af.Program()
    for step in range(steps):
        start = program.now
        program.work(work)
        for _ in range(kernels):
            program.launch("k", ns)
        program.synchronize()
        program.range(f"ProfilerStep#{step}", start, program.now)
    return program


def test_one_iteration_has_no_spread(tmp_path, capsys):
    assert cli.main(["summary", "--input", str(marked(2, 500_000, 1, 100_000).write(tmp_path))]) == 0
    assert re.search(r"Seen over 1 of 2 iterations of [\d.]+ us, without the last", capsys.readouterr().out)


def test_many_small_kernels_are_counted_in_full(tmp_path, capsys):
    assert cli.main(["summary", "--input", str(marked(3, 40_000_000, 12_345, 900).write(tmp_path))]) == 0
    assert "most of all k of 0.9 us (12,345 of 12,345 an iteration)" in capsys.readouterr().out


def test_without_iterations_no_kernel_is_counted_by_them(tmp_path, capsys):
    assert told_of(capsys, tmp_path, "tree").count(" an iteration") == 0


def test_work_that_waits_on_an_idle_device_waits_for_no_other_work(tmp_path, capsys):
    told = "1. Launched work does not begin, though nothing that was recorded runs (critical"
    assert told in told_of(capsys, tmp_path, "wait")
    made = af.Program()
    for launch in range(1, 21):
        made.call("cudaLaunchKernel", made.now - 30_000, made.now - 26_000, correlation=launch)
        at = made.now + 300_000
        made.kernel("k", at, at + 100_000, correlation=launch)
        made.kernel("other", at + 10_000, at + 50_000, stream=8)
        made.now = at + 100_000
    (tmp_path / "two").mkdir()
    made.write(tmp_path / "two")
    assert cli.main(["summary", "--input", str(tmp_path / "two")]) == 0
    assert told in capsys.readouterr().out


def test_the_kernel_that_is_named_too_small_is_small(tmp_path, capsys):
    # A product of 60.6 us runs most often, 12.32 times an iteration.
    told = re.search(r"most of all \S+ of ([\d.]+) us \(9\.162 of", told_of(capsys, tmp_path, "evaluation"))
    assert float(told[1]) < 50


def told_of(capsys, folder, name):
    """The text of a recorded program."""
    packed = Path(__file__).parent / "captures" / "h200" / f"{name}.aiprof.xz"
    (folder / "h-1-0.aiprof").write_bytes(lzma.decompress(packed.read_bytes()))
    assert cli.main(["summary", "--input", str(folder)]) == 0
    return capsys.readouterr().out


def test_text_says_of_how_many_iterations_the_figures_are(tmp_path, capsys):
    path = warming_up(20).write(tmp_path)
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Seen over 17 of 20 iterations of " in text
    assert ", without 2 of warm-up and the last, which nothing ends." in text
    assert "51 kernels of " in text


def test_text_says_how_sure_the_iterations_are_before_which_it_leaves_out(tmp_path, capsys):
    packed = Path(__file__).parent / "captures" / "h200" / "prefill_decode.aiprof.xz"
    (tmp_path / "h-1-0.aiprof").write_bytes(lzma.decompress(packed.read_bytes()))
    assert cli.main(["summary", "--input", str(tmp_path)]) == 0
    told = r"\), found with confidence \d+%, without \d+ of warm-up and the last, which nothing ends\.\n"
    assert re.search(told, capsys.readouterr().out)


def warming_up(iterations):
    """The first two take three times as long, up to the start of what follows."""
    program = af.Program()
    for i in range(iterations):
        program.work(1_500_000 if i < 3 else 500_000)
        program.copy(af.HTOD, 20_000)
        for k in range(3):
            program.launch(f"k{k}", 100_000)
        program.synchronize()
    return program


def waits(capsys, folder, every, *, before=0):
    """What the text says of the waits of a loop that waits in each of some iterations, and before it."""
    program = af.Program()
    for _ in range(before):
        program.synchronize()
    for i in range(60):
        program.work(500_000)
        program.copy(af.HTOD, 20_000)
        for k in range(3):
            program.launch(f"k{k}", 100_000)
        for _ in range(every(i)):
            program.synchronize()
    assert cli.main(["summary", "--input", str(program.write(folder))]) == 0
    told = re.search(r"1 stream; (.*)\.\n", capsys.readouterr().out)[1]
    return told.removeprefix("the host waits for the device ")


@pytest.mark.parametrize(
    ("every", "told"),
    [
        (lambda _: 1, "once an iteration"),
        (lambda _: 2, "2 times an iteration"),
        (lambda i: 1 + (i % 10 == 5), "1.1 times an iteration on average"),
        (lambda i: i % 10 == 5, "6 times in all, about once in 10 iterations"),
    ],
)
def test_text_says_how_often_the_host_waits(tmp_path, capsys, every, told):
    assert waits(capsys, tmp_path, every) == told


def test_waits_before_the_iterations_are_none_of_theirs(tmp_path, capsys):
    assert waits(capsys, tmp_path, lambda _: 0, before=5) == "no synchronizes in these iterations"


def test_text_sets_no_saving_beside_an_iteration_that_is_shorter(tmp_path, capsys):
    """A few long iterations raise the mean saving above the median iteration."""
    program = af.Program()
    for i in range(30):
        program.work(5_000_000 if i % 5 == 4 else 500_000)
        program.copy(af.HTOD, 20_000)
        program.launch("k", 300_000)
        program.synchronize()
    assert cli.main(["summary", "--input", str(program.write(tmp_path))]) == 0
    text = capsys.readouterr().out
    told = re.findall(r"worth up to ([\d.]+) ms of the mean iteration's ([\d.]+) ms", text)
    median = float(re.search(r"iterations of ([\d.]+) us", text)[1]) / 1000
    assert told
    assert all(median < float(saved) <= float(mean) for saved, mean in told)
    assert 1.6 < float(told[0][1]) < 1.9


def test_text_tells_of_waits_in_copies_where_nothing_else_waits(tmp_path, capsys):
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "dur": 50}
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 9, "tid": 9}
    events = []
    for step in range(12):
        at = 1000 * step
        launch = {"name": "cudaLaunchKernel", "ts": at, "dur": 5, "args": {"correlation": step + 1}}
        ran = {"name": "k", "ts": at + 10, "args": {"device": 0, "stream": 7, "correlation": step + 1}}
        copied = {"name": "cudaMemcpy", "ts": at + 20, "dur": 960, "args": {"correlation": 100 + step}}
        moved = {"name": "Memcpy DtoH (Device -> Pageable)", "ts": at + 970, "dur": 5, "cat": "gpu_memcpy"}
        moved["args"] = {"device": 0, "stream": 7, "correlation": 100 + step, "bytes": 4}
        events += [call | launch, kernel | ran, call | copied, kernel | moved]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert cli.main(["summary", "--input", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Device 0 is idle 9")  # the trace names no device
    assert "the host blocked in synchronizes 9" in said
    assert "the host waits in blocking copies." in said


def test_text_lists_the_longest_gaps(tmp_path, capsys):
    path = loop().write(tmp_path)
    assert cli.main(["summary", "--input", str(path), "--gaps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index("Longest gaps of device 0:")
    assert len(lines) == begin + 11
    assert all("waiting for data, where iteration " in line for line in lines[begin + 1 :])
    assert all("between k2 and memcpy host to device; calls: cuda" in line for line in lines[begin + 1 :])


def test_work_of_no_length_has_figures(tmp_path, capsys):
    program = af.Program()
    program.launch("k", 0)
    (device,) = summary(capsys, tmp_path, program)["devices"]
    assert (device["kernel_count"], device["kernel_busy"], device["gap"]) == (1, 0, 1)
    assert sum(device["gap_causes"].values()) == 1


def test_no_gpu_work_is_exit_3(tmp_path, capsys):
    path = af.Program().write(tmp_path)
    assert cli.main(["summary", "--input", str(path), "--json"]) == 3
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["devices"] == []
    assert "no device work" in found["reason"]
    assert "no device work" in captured.err


def test_of_a_trace_that_was_cut_at_once_nothing_is_claimed(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text("[1,2")
    assert cli.main(["summary", "--input", str(path)]) == 3
    assert "whether the program did any can't be told" in capsys.readouterr().err


def test_of_a_trace_that_was_cut_before_its_device_work_no_absence_is_claimed(tmp_path, capsys):
    # torch.profiler writes what the host did first.
    path = tmp_path / "trace.json"
    call = '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%d,"dur":5}'
    path.write_text('{"traceEvents": [' + ",".join(call % (10 * i) for i in range(1, 50)) + ',{"ph":"X","ca')
    assert cli.main(["summary", "--input", str(path), "--json"]) == 3
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["id"], finding["severity"]) == ("incomplete-capture", "critical")
    assert finding["actions"][0].startswith("Capture again: the device work may lie in the part")


def test_output_is_written_and_a_bad_folder_is_said(tmp_path, capsys):
    path = loop().write(tmp_path)
    target = tmp_path / "summary.json"
    assert cli.main(["summary", "--input", str(path), "--json", "--output", str(target)]) == 0
    assert json.loads(target.read_text())["schema"] == "ai-prof/summary/1"
    assert cli.main(["summary", "--input", str(path), "--output", str(tmp_path / "no" / "x")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h-100-0.aiprof", "summary.json"]


def test_of_what_a_cut_trace_lost_it_is_not_said_that_there_was_none(tmp_path, capsys):
    work = {"ph": "X", "cat": "kernel", "name": "k", "dur": 50}
    events = [work | {"ts": 100 + 100 * i, "args": {"device": 0, "stream": 7}} for i in range(9)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events})[:-2])
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "No copies could be read; 1 stream; no synchronizes could be read." in text
    assert "AI_PROF_LEVEL" not in text
    path.write_text(json.dumps({"traceEvents": events}))
    assert cli.main(["summary", "--input", str(path)]) == 0
    assert "No copies; 1 stream; no synchronizes in these iterations." in capsys.readouterr().out


def test_the_kernels_that_take_most_time_are_told(tmp_path, capsys):
    program = af.Program()
    for _ in range(20):
        program.copy(af.HTOD, 20_000)
        for name, ns in (("small", 10_000), ("large", 300_000), ("small", 30_000)):
            program.launch(name, ns)
        program.synchronize()
    (device,) = summary(capsys, tmp_path, program, "--window", "span")["devices"]
    large, small = device["top_kernels"]
    assert large == {
        "name": "large",
        "count": 20,
        "total_ms": pytest.approx(6.0),
        "mean_us": pytest.approx(300.0),
        "share": pytest.approx(300 / 340),
    }
    assert (small["name"], small["count"], small["mean_us"]) == ("small", 40, pytest.approx(20.0))
    cli.main(["summary", "--input", str(tmp_path), "--window", "span"])
    assert "Most of their time: large 88% (20 of 300 us), small 12% (40 of 20 us)." in capsys.readouterr().out


def test_a_finding_says_which_device_it_is_about(tmp_path, capsys):
    program = af.Capture()
    for number in (2, 5):
        program.device(number, uuid=bytes([number]) * 16)
    program.clock(1, 1, 5)
    for i in range(30):
        program.kernel("fed", i * 1_000_000, i * 1_000_000 + 990_000, device=2)
        program.kernel("starved", i * 1_000_000, i * 1_000_000 + 5_000, device=5)
    found = summary(capsys, tmp_path, program)
    assert [device["device"] for device in found["devices"]] == [2, 5]
    about = {finding["evidence"]["device"] for finding in found["findings"] if finding["id"] == "gap-unknown"}
    assert about == {1}
    cli.main(["summary", "--input", str(tmp_path)])
    assert ". Device 5: Idle time whose cause was not recorded" in capsys.readouterr().out


def test_unreadable_input_is_exit_2(tmp_path, capsys):
    assert cli.main(["summary", "--input", str(tmp_path / "absent")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_cut_capture_is_summarised_and_said(tmp_path, capsys):
    path = loop().write(tmp_path, closed=False)
    assert cli.main(["summary", "--input", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    assert "without closing" in captured.err
    found = json.loads(captured.out)
    assert not found["source"]["complete"]
    assert ids(found)[0] == "incomplete-capture"


def flushes(iterations, *, each=10, work=50_000):
    """The blocks of a capture whose records of all kinds were written every few iterations, kind by kind."""
    program, begin = af.Program(level="api"), 0
    for i in range(iterations):
        program.work(work)
        program.copy(af.HTOD, 20_000)
        for k in range(3):
            program.launch(f"k{k}", 100_000)
        program.copy(af.DTOH, 20_000)
        program.synchronize()
        if i % each == each - 1:
            program.rows[begin:] = sorted(program.rows[begin:], key=lambda row: row[0])
            begin = len(program.rows)
    return program.blocks()


def kind(block):
    return int.from_bytes(block[:4], "little")


def cut_at(blocks, what, folder):
    """The capture without its last block of a kind and all that follows, but for that block's begin."""
    last = max(i for i, block in enumerate(blocks) if kind(block) == what)
    path = folder / "h-100-0.aiprof"
    path.write_bytes(b"".join(blocks[:last]) + blocks[last][:40])
    return path


@pytest.mark.parametrize("what", [af.KERNEL, af.MEMCPY, af.SYNC, af.CALL])
def test_the_figures_of_a_cut_capture_end_with_the_last_flush(tmp_path, capsys, what):
    path = cut_at(flushes(40), what, tmp_path)
    assert cli.main(["summary", "--input", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    assert "it was cut" in captured.err
    assert ("; some kinds of records end before others" in captured.err) == (what != af.KERNEL)
    found = json.loads(captured.out)
    (device,) = found["devices"]
    assert (device["iterations"]["count"], device["gap_causes"]["unknown"]) == (30, 0)
    assert device["memcpy_count"] == 2 * 29
    assert device["sync_count"] == 29
    assert "gap-unknown" not in ids(found)


def test_gaps_of_a_cut_capture_are_not_laid_to_its_level(tmp_path, capsys):
    path = cut_at(flushes(40, each=40, work=100_000), af.CALL, tmp_path)
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "unknown (its launch is not in the file)" in text
    assert "The launches of what ran after these gaps are missing, with what could not be read" in text
    assert "AI_PROF_LEVEL" not in text


def test_of_a_capture_that_is_mostly_damaged_the_share_is_said_and_no_advice_given(tmp_path, capsys):
    blocks = flushes(60, each=2)
    third = [i for i, block in enumerate(blocks) if kind(block) == af.KERNEL][2]
    blocks[third] = blocks[third][:-1] + b"\xff"
    path = tmp_path / "h-100-0.aiprof"
    path.write_bytes(b"".join(blocks))
    share = f"{sum(map(len, blocks[:third])) / path.stat().st_size:.1%}"
    assert cli.main(["summary", "--input", str(path)]) == 0
    captured = capsys.readouterr()
    assert f"is damaged: what follows was not read; {share} of the file could be" in captured.err
    steps = [line for line in captured.out.splitlines() if line[0] != " "][1:]
    remedy = f"Capture again: {share} of it could be read, and no figure speaks for the rest."
    assert steps == [f"1. The capture is incomplete (critical). {remedy}"]
    path.write_bytes(b"AIPROF\r\n\x01\x00")
    assert cli.main(["summary", "--input", str(path)]) == 3
    assert "Capture again: nothing of it could be read" in capsys.readouterr().out
