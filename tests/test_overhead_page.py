"""The arithmetic behind docs/overhead.md, and its page."""

from __future__ import annotations

import collections
import importlib
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BENCH = Path(__file__).parent / "bench"
NAMES = ("nothing", "floor kernel node", "ours kernel node", "floor api node", "ours api node")
GRAPHS = ("floor kernel graph", "ours kernel graph", "floor api graph", "ours api graph")


@pytest.fixture
def bench(monkeypatch):
    """The modules of the bench, which is a script with its own folder on the path."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("minima"), importlib.import_module("launch_page")


times = st.lists(st.floats(1, 100), min_size=2, max_size=20)


@settings(deadline=None)
@given(data=st.data(), nothing=times)
def test_an_interval_never_lies_below_what_could_be_drawn(data, nothing):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        minima = importlib.import_module("minima")
    own = data.draw(st.lists(st.floats(1, 100), min_size=len(nothing), max_size=len(nothing)))
    more, (low, high) = minima.added(nothing, own)
    assert more == min(own) - min(nothing)
    assert min(own) - max(nothing) <= low <= high <= max(own) - min(nothing)


def test_ratios_are_of_what_is_added(bench):
    minima, _ = bench
    nothing, own, floor = [4.0, 4.5, 4.1], [5.2, 5.0, 5.6], [5.0, 4.8, 4.9]
    value, (low, high) = minima.ratio_of_added(nothing, own, floor)
    assert value == pytest.approx(1.0 / 0.8)
    assert low <= value <= high
    assert math.isnan(minima.ratio_of_added(nothing, own, nothing)[0])
    assert minima.ratio(nothing, own)[0] == pytest.approx(1.25)


def test_a_page_says_what_is_met_and_what_is_not(bench):
    _, page = bench
    cost = {"nothing": 4.0, "floor": 5.0, "ours": 5.1}
    launch = {name: [cost[name.split()[0]]] * 3 for name in (*NAMES, *GRAPHS)}
    launch["ours api node"] = [6.0] * 3
    launch |= {"ours, after its window": [4.1] * 3, "ours, standing by": [4.0] * 3}
    facts = page.Facts(["a card"], 3, "2026-01-01", None)
    text = page.page({"launch_us": launch, "graph_us": launch}, facts, [page.LAUNCH_LOOP])
    assert "over 3 interleaved rounds" in text
    wanted = "added at most 1.15 of what the floor adds"
    assert f"| a launch, level kernel: {wanted} | 1.10 (1.10 to 1.10) | met |" in text
    assert f"| a launch, level api: {wanted} | 2.00 (2.00 to 2.00) | **not met** |" in text
    assert "| after its window: at most 1.05 of never captured | 1.02 (1.02 to 1.02) | met |" in text


@pytest.mark.parametrize(("end", "rounds"), [(math.inf, [1, 2, 3]), (0.0, [1])])
def test_the_page_is_anew_after_each_round_until_the_time_is_up(bench, monkeypatch, end, rounds):
    _, page = bench
    overhead = importlib.import_module("launch_overhead")

    def measure_round(columns, *_):
        for name in (*NAMES, *GRAPHS, "ours, after its window", "ours, standing by"):
            for measure in ("launch_us", "graph_us"):
                columns[measure].setdefault(name, []).append(4.0 + len(name))

    monkeypatch.setattr(overhead, "measure_round", measure_round)
    facts = page.Facts(["a card"], 0, "2026-01-01", None)
    made = list(overhead.measured(collections.defaultdict(dict), facts, None, None, (3, end)))
    counts = [text.partition(" interleaved rounds")[0].rpartition(" ")[2] for text in made]
    assert counts == [str(count) for count in rounds]
