"""Traces recorded by others, against figures computed by others; the folder stands beside the checkout."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from ai_prof.cli import main
from ai_prof.errors import EXIT_NOTHING, EXIT_PASS

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
TRUTH = json.loads((TRACES / "truth.json").read_text()) if (TRACES / "truth.json").exists() else {}
STEPPED = [name for name, truth in TRUTH.items() if "profiler_steps" in truth]

pytestmark = pytest.mark.skipif(not TRUTH, reason=f"the traces recorded by others are not there: {TRACES}")


def summary(capsys, name):
    code = main(["summary", "--input", str(TRACES / name), "--window", "span", "--json"])
    output = capsys.readouterr()
    assert code == (EXIT_PASS if TRUTH[name]["devices"] else EXIT_NOTHING)
    return json.loads(output.out), output.err


def assert_figures(device, truth):
    for figure, value in truth.items():
        expected = value if value is None else pytest.approx(value, rel=1e-9, abs=0)
        assert device[figure] == expected, figure


@pytest.mark.parametrize("name", TRUTH)
def test_every_figure_is_the_one_known_from_outside(capsys, name):
    found, _ = summary(capsys, name)
    devices = {str(device["device"]): device for device in found["devices"]}
    assert devices.keys() == TRUTH[name]["devices"].keys()
    for key, truth in TRUTH[name]["devices"].items():
        assert_figures(devices[key], truth)
    assert found["source"]["complete"]
    assert all(not loss["invalid_time"] for loss in found["source"]["losses"].values())


@pytest.mark.parametrize("name", TRUTH)
def test_causes_add_up_to_the_gap(capsys, name):
    found, _ = summary(capsys, name)
    for device in found["devices"]:
        assert sum(device["gap_causes"].values()) == pytest.approx(device["gap"])


@pytest.mark.parametrize("name", STEPPED)
def test_iterations_are_those_of_the_profiler_steps(capsys, name):
    found, _ = summary(capsys, name)
    (device,) = found["devices"]
    steps = TRUTH[name]["profiler_steps"]
    assert device["iterations"]["method"] == "profiler_step"
    assert device["iterations"]["count"] == steps["count"]
    expected = statistics.median(steps["device_interval_ms"])
    assert device["iterations"]["median_ms"] == pytest.approx(expected, rel=0.02)


def test_a_trace_without_a_gpu_says_so(capsys):
    found, errors = summary(capsys, "kineto/hta_cpu_only.json.gz")
    assert found["devices"] == []
    assert "ProfilerActivity.CUDA" in found["reason"]
    assert found["reason"] in errors


def test_two_ranks_in_a_folder_are_one_job(capsys, tmp_path):
    names = ["kineto/hta_sampled_rank0.json.gz", "kineto/hta_sampled_rank1.json.gz"]
    for name in names:
        (tmp_path / Path(name).name).symlink_to(TRACES / name)
    assert main(["summary", "--input", str(tmp_path), "--window", "span", "--json"]) == EXIT_PASS
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["rank"] for device in devices] == [0, 1]
    for name, device in zip(names, devices, strict=True):
        (truth,) = TRUTH[name]["devices"].values()
        assert_figures(device, truth)
