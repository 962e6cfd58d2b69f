"""docs/metrics.md explains every figure that is printed, with the thresholds that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from ai_prof.gate.metrics import TOTALS
from ai_prof.timeline import healthy
from ai_prof.timeline.advice import ACTIONS
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.ranks import RankSummary
from ai_prof.timeline.summary import DeviceSummary, IterationSummary

TEXT = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
CODE = set(re.findall(r"`([^`]+)`", TEXT))
WHO = {"device", "uuid", "name", "rank", "iterations"}  # not figures


def test_every_figure_is_explained():
    for struct in (DeviceSummary, IterationSummary, RankSummary):
        assert {*struct.__struct_fields__} - WHO - CODE == set()
    assert {metric.key for metric in TOTALS} - CODE == set()


def test_every_finding_and_cause_is_explained():
    assert ACTIONS.keys() - CODE == set()
    assert set(CAUSES) - CODE == set()


def test_thresholds_are_those_of_the_code():
    assert "above 0.85; below 0.70" in TEXT
    assert (healthy.BUSY_HEALTHY, healthy.BUSY_STARVED) == (0.85, 0.70)
    assert "below 0.15; above 0.30" in TEXT
    assert (healthy.GAP_HEALTHY, healthy.GAP_STARVED) == (0.15, 0.30)
    assert "above 50; below 20" in TEXT
    assert (healthy.KERNEL_HEALTHY_US, healthy.KERNEL_FRAGMENTED_US) == (50, 20)
    assert "above 0.80, where copies matter" in TEXT
    assert healthy.OVERLAP_HEALTHY == 0.80


def test_floors_are_those_of_the_gate():
    section = TEXT.split("## A run", 1)[1].split("## What others", 1)[0]
    for metric in TOTALS:
        row = next(
            line for line in section.splitlines() if line.startswith("|") and f"`{metric.key}`" in line
        )
        if metric.floor.relative:
            assert f"{100 * metric.floor.relative:g} %" in row
        if metric.floor.absolute and metric.unit == "ms":
            assert f"{1000 * metric.floor.absolute:g} us" in row
        if metric.unit == "ratio":
            assert f"{100 * metric.floor.absolute:g} point" in row
