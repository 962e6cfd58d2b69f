from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import aiprof_file as af
import pytest
from summaries import loop, summary

from ai_prof import cli


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


def test_of_a_single_step_the_whole_capture_is_counted(tmp_path, capsys):
    assert cli.main(["summary", "--input", str(marked(1, 500_000, 60, 900).write(tmp_path))]) == 0
    assert "most of all k of 0.9 us (60 of 60) (" in capsys.readouterr().out


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
