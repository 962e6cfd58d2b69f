"""The rules of other tools that the gate is set beside, and the tables of docs/gate.md."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).with_name("bench")))
import campaign
import doc_tables
import peers
import places
import sim_totals
from gate_runs import make_run


def draw(old, new):
    """Runs of ten iterations around each of the given latencies."""
    around = np.linspace(0.99, 1.01, 10)
    sides = [[make_run(latency=y, iteration_ms=(y * around).tolist()) for y in side] for side in (old, new)]
    return campaign.Draw(*sides, [], [], {})


STILL = [4.0, 4.01, 3.99, 4.02, 3.98, 4.0, 4.01, 3.99, 4.0, 4.02]


@pytest.mark.parametrize("rule", list(peers.RULES)[:7])
def test_each_rule_passes_the_same_and_fails_a_half_more(rule):
    assert not peers.RULES[rule](draw(STILL, [4.0, 3.99, 4.01]))
    assert peers.RULES[rule](draw(STILL, [6.0, 6.01, 5.99]))
    assert not peers.RULES[rule](draw(STILL, [3.0, 3.01, 2.99]))


def test_thresholds_and_factors_are_those_of_the_tools():
    seven = draw(STILL, [4.27, 4.28, 4.29])
    verdicts = [rule(seven) for rule in list(peers.RULES.values())[:7]]
    assert verdicts == [True, False, True, True, True, False, True]


def test_a_simulated_delay_lies_where_it_was_put():
    source = campaign.simulated()[0]
    plain, slowed = source.draw(1, None), source.draw(1, "middle +100 us")
    middle = 75
    old = [plain.profiles[run.profile].values[1, middle] for run in plain.candidate]
    new = [slowed.profiles[run.profile].values[1, middle] for run in slowed.candidate]
    grown = np.median(np.exp(new)) - np.median(np.exp(old))
    assert 50 < grown < 150
    assert peers.flagged(slowed)
    assert not peers.flagged(plain)


def test_two_per_cent_are_found_where_a_tenth_of_the_launches_is_slow():
    """A few of the builds of `nox -s gate-sim`: sessions vary by 0.5 %, a slow launch is slower by 1.8 %."""
    setting = next(each for each in sim_totals.SETTINGS if each.name == "0.5 %, 10 % of launches slow")
    assert sim_totals.simulate(setting, 60, 0.02, 1).found >= 56


def test_identical_launches_on_a_busy_host_are_seldom_flagged():
    """Recorded on two cores with a load of 8 to 22: launches of one program differ by a factor of two."""
    sources = campaign.recorded([Path(campaign.__file__).parent / "recordings" / "pocl-busy"])
    assert {source.name for source in sources} == {"cl_train", "cl_tiny", "cl_loader", "cl_overlap"}
    flagged = 0
    for source in sources:
        rng = np.random.default_rng(1)
        seen = [places.draw(source, "", "any", rng) for _ in range(20)]
        flagged += sum(any(one.finding for one in compared) for compared in seen)
        slept = [places.draw(source, "stall=0.1", "any", rng) for _ in range(5)]
        if source.name != "cl_loader":  # its stall is more work of the loader, a tenth of it none
            assert all(any(one.finding for one in compared) for compared in slept)
    assert flagged <= 1  # of 80


def test_a_table_takes_the_place_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- /one -->\nb\n")
    text = doc_tables.table(("x", "y"), [("1", "2")])
    doc_tables.write("one", text, page)
    assert page.read_text() == "a\n<!-- one -->\n| x | y |\n| --- | --- |\n| 1 | 2 |\n<!-- /one -->\nb\n"
    with pytest.raises(ValueError, match="0 places"):
        doc_tables.write("two", text, page)
