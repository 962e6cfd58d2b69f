from __future__ import annotations

import json

import aiprof_file as af
import pytest
from summaries import ids, loop, summary

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


def test_what_a_reader_warns_of_is_in_the_json_and_no_fault_of_the_capture(tmp_path, capsys):
    program = af.Capture()
    program.device()
    program.kernel("k", 1_000, 2_000)
    found = summary(capsys, tmp_path, program)
    assert found["source"]["complete"]
    assert ids(found)[0] == "capture-notes"
    assert "no clock was calibrated" in found["findings"][0]["evidence"]["warnings"][0]


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


def test_output_is_written_and_a_bad_folder_is_said(tmp_path, capsys):
    path = loop().write(tmp_path)
    target = tmp_path / "summary.json"
    assert cli.main(["summary", "--input", str(path), "--json", "--output", str(target)]) == 0
    assert json.loads(target.read_text())["schema"] == "ai-prof/summary/1"
    assert cli.main(["summary", "--input", str(path), "--output", str(tmp_path / "no" / "x")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h-100-0.aiprof", "summary.json"]


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
