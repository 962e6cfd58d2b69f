"""The arithmetic behind docs/overhead.md, and its page."""

from __future__ import annotations

import importlib
import json
import math
import re
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
    launch |= {f"ours {level}, after its window": [4.1] * 3 for level in ("kernel", "api")}
    launch["ours, standing by"] = [4.0] * 3
    facts = page.Facts(["a card"], 3, "2026-01-01", None)
    text = page.page(page.COST, {"launch_us": launch, "graph_us": launch}, facts, [page.LOOP])
    assert "over 3 interleaved rounds" in text
    assert "a launch of 4.00 us takes 1.10 us longer at level `kernel`, 2.00 at `api`" in text
    wanted = "added at most 1.15 of what the floor adds"
    assert f"| a launch, level kernel: {wanted} | 1.100 (1.100 to 1.100) | met |" in text
    assert f"| a launch, level api: {wanted} | 2.000 (2.000 to 2.000) | **not met** |" in text
    assert "| a launch, ours api, after its window: at most 1.05 of never captured | 1.025 (1.025 " in text


def test_a_program_that_fails_costs_its_own_round(bench):
    minima, page = bench
    nothing, own, never = [4.0, 4.0, 4.0], [None, 5.0, 6.0], [None, None, None]
    assert minima.added(nothing, own) == (1.0, (1.0, 2.0))
    assert math.isnan(minima.added(nothing, never)[0])
    assert math.isnan(minima.ratio_of_added(nothing, own, never)[0])
    tiny = {"nothing": nothing, "floor, api": own, "ours, api": own, "torch.profiler, CUDA": never}
    step = {"nothing": nothing, "ours, kernel": never, "ours, api": own}
    facts = page.Facts(["a card"], 3, "2026-01-01", None)
    text = page.page(page.COST, {"tiny_us": tiny, "step_ms": step}, facts, [page.TORCH])
    assert (
        "| ours, api | 5.000 | 5.500 | +1.000 | +1.000 to +2.000 | 1.250 | 1.375 | 1.000 (1.000 to 1.000) |"
        in text
    )
    assert "| torch.profiler, CUDA | no figure |  | | | | | |" in text
    assert (
        "With figures of fewer rounds: floor, api, 2 of 3; ours, api, 2 of 3; torch.profiler, CUDA, 0 of 3."
        in text
    )
    assert "| nan (nan to nan) | no figure |" in text
    assert "busy for an unknown part of its time" in text


def test_only_rounds_that_have_both_are_compared(bench):
    minima, _ = bench
    nothing, own = [2.0, 4.0, 4.4], [None, 5.0, 6.6]
    assert minima.added(nothing, own)[0] == 1.0
    assert minima.ratio(nothing, own)[0] == 1.25
    assert minima.ratio_by_round(nothing, own) == pytest.approx(1.375)


@pytest.fixture
def measured(bench, monkeypatch, tmp_path):
    """Measures a plan without PyTorch: each page, and the raw figures that lie there then.

    No process is started: each costs as much as its name is long, and those that `fails` names fail.
    """
    del bench
    overhead = importlib.import_module("launch_overhead")
    parts = overhead.Parts(tmp_path, tmp_path / "cupti" / "lib" / "libcupti.so")

    def made(name, limits, fails=(), more=False, card="a card"):
        def run_loop(capture, _):
            if capture.name in fails:
                raise overhead.LoopFailedError("as it happens")
            return dict.fromkeys(("launch_us", "graph_us"), 4.0 + len(capture.name))

        monkeypatch.setattr(overhead, "run_loop", run_loop)
        monkeypatch.setattr(overhead, "machine", lambda: [card])
        monkeypatch.setattr(overhead, "FIGURES", tmp_path)
        plan = getattr(overhead, name)
        figures = overhead.kept(plan, overhead.place(None, parts)) if more else overhead.Figures()
        for text in overhead.measured(plan, figures, None, parts, limits):
            yield text, json.loads((tmp_path / f"{plan.name}.json").read_text())

    return made


@pytest.mark.parametrize(("end", "rounds"), [(math.inf, [1, 2, 3]), (0.0, [1])])
@pytest.mark.parametrize("plan", ["USUAL", "OF_KINDS"])
def test_page_and_figures_are_anew_after_each_round_until_the_time_is_up(measured, plan, end, rounds):
    counts = []
    for text, raw in measured(plan, (3, end)):
        counts.append(int(text.partition(" interleaved rounds")[0].rpartition(" ")[2]))
        assert {len(column) for each in raw["columns"].values() for column in each.values()} == {counts[-1]}
        assert (raw["torch"], raw["cupti"], raw["failures"]) == (None, "cupti", [])
    assert counts == rounds


def test_a_failure_is_told_in_the_figures_too(measured):
    *_, (text, raw) = measured("OF_KINDS", (2, math.inf), fails=["level api, no MARKER"])
    assert text.count("With figures of fewer rounds: level api, no MARKER, 0 of 2.") == 2
    assert "| level kernel, kernels alone | " in text
    assert raw["columns"]["launch_us"]["level api, no MARKER"] == [None, None]
    assert [each["round"] for each in raw["failures"]] == [1, 2]
    assert raw["failures"][0]["why"] == "as it happens"


def test_rounds_come_to_those_that_are_kept_of_such_a_machine(measured, tmp_path):
    list(measured("USUAL", (2, math.inf), fails=["ours, standing by"]))
    path = tmp_path / "overhead.json"
    raw = json.loads(path.read_text())
    for rounds in raw["columns"].values():
        rounds["of old"] = rounds.pop("ours api, after its window")
    path.write_text(json.dumps(raw))
    *_, (text, raw) = measured("USUAL", (1, math.inf), more=True)
    assert "over 3 interleaved rounds" in text
    launches = raw["columns"]["launch_us"]
    assert {len(column) for column in launches.values()} == {3}
    assert launches["nothing"] == [11.0] * 3
    assert launches["ours api, after its window"][:2] == launches["of old"][2:] * 2 == [None, None]
    assert [each["round"] for each in raw["failures"]] == [1, 2]
    with pytest.raises(SystemExit, match=r"is of a card, not another: measure anew, without --more"):
        next(measured("USUAL", (1, math.inf), more=True, card="another"))


def test_a_bench_of_which_all_fails_ends(measured):
    names = [capture.name for capture in importlib.import_module("launch_overhead").OF_KINDS.captures]
    with pytest.raises(SystemExit, match="no program could be measured"):
        next(measured("OF_KINDS", (2, math.inf), fails=names))


def test_every_kind_that_a_capture_asks_for_can_be_left_out(bench):
    del bench
    capture = Path(__file__).parents[1] / "capture"
    source = (capture / "src" / "cupti" / "subscription.cpp").read_text()
    asked = re.search(r"kKinds\[\] = \{(.*?)\};", source, re.DOTALL)[1]
    named = dict(
        re.findall(r'\{"(\w+)", CUPTI_ACTIVITY_KIND_(\w+)\}', (capture / "tests/floor.cpp").read_text())
    )
    kinds = importlib.import_module("launch_programs").KINDS
    assert set(re.findall(r"CUPTI_ACTIVITY_KIND_(\w+)", asked)) == set(kinds) == set(named.values())
    assert all(name == kind for name, kind in named.items())
