from __future__ import annotations

import msgspec
import pytest
import verdicts

from ai_prof.gate.model import GapChange, SyncChange, Why
from ai_prof.report import format as fmt
from ai_prof.report import places, why_view
from ai_prof.timeline.diff_kernels import KernelChange, KernelUse

TIMES = "\N{MULTIPLICATION SIGN}"


def test_a_kernel_of_which_another_variant_runs_names_both():
    uses = (KernelUse(10, 100.0, 1.0, 0, f"gemm_{tile}") for tile in ("128x64", "64x64"))
    change = KernelChange("gemm_#x#", ["slower"], *uses, 0.2)
    ((row,), _) = why_view.rows(Why(sides=("baseline", "candidate"), kernels=[change]))
    assert row.told == "before gemm_128x64, now gemm_64x64"


def test_gaps_in_the_shadow_of_synchronizes_say_so():
    gap = GapChange("gemm", "relu", (52, 26), (100.0, 400.0), {"launch": 400.0}, {}, 360.0)
    more = SyncChange("cudaDeviceSynchronize", "gemm", (0, 1))
    told = []
    for syncs in ([more], []):  # where there are no more of them than before, they are not why
        ((row,), _) = why_view.rows(Why(sides=("baseline", "candidate"), gaps=[gap], syncs=syncs))
        told.append(row.told)
    assert told == ["90 % of it in the shadow of synchronizes", ""]
    assert places.gap_sentence(gap) == (
        "The gaps between gemm and relu (26, before 52) grew from 100.0 µs to 400.0 µs in all."
    )


def test_what_comes_now_and_then_is_shown_as_a_share_of_the_iterations():
    use = KernelUse(0.25, 300.0, 0.075)
    added = KernelChange("f", ["added"], None, use, 0.075)
    (row,), _ = why_view.rows(msgspec.structs.replace(verdicts.explained(), kernels=[added], gaps=[]))
    assert (row.before.total, row.after.total, row.after.each) == (
        fmt.NOTHING,
        "75.00 µs",
        "300.0 µs in 25 % of iterations",
    )
    once, several = KernelUse(1, 12.0, 0.012), KernelUse(3, 12.0, 0.036)
    more = KernelChange("f", ["faster", "more often"], once, several, 0.024)
    (row,), _ = why_view.rows(msgspec.structs.replace(verdicts.explained(), kernels=[more], gaps=[]))
    assert row.what == "kernel shorter, more often"
    assert row.before == why_view.Spell("12.00 µs")
    assert row.after == why_view.Spell("36.00 µs", f"3 {TIMES} 12.00 µs")


def test_the_causes_of_gaps_are_named_with_their_shares():
    assert why_view.causes({"data": 12.0}) == [("data", "data")]
    named = why_view.causes({"launch": 60.0, "host": 30.0, "wait": 10.0})
    assert named == [("launch", "launch 60 %"), ("host", "host 30 %")]
    assert why_view.causes({}) == []


def test_gaps_that_are_new_are_called_that_and_only_long_calls_in_them_named():
    (gap,) = verdicts.explained().gaps
    calls = {"clEnqueueReadBuffer": 0.9, "clWaitForEvents": 0.0005}
    new = msgspec.structs.replace(gap, count=(0, 12), us=(0.0, 10_780.0), calls_ms=calls)
    said = "The 12 gaps between gemm_2 and memcpy host to device are new: 10.78 ms in all."
    assert places.gap_sentence(new) == said
    grown = msgspec.structs.replace(gap, count=(1, 220), us=(3.2, 348.8))
    assert places.gap_sentence(grown).endswith(" grew from 3.200 µs to 348.8 µs in all.")
    (row,), _ = why_view.rows(msgspec.structs.replace(verdicts.explained(), kernels=[], gaps=[new]))
    assert row.told == "host calls in the longest: clEnqueueReadBuffer 900.0 µs"
    assert why_view.time(0.03) == "0.030 µs"


def test_places_are_sorted_by_change_and_counted_where_hidden():
    why = verdicts.explained()
    found, hidden = why_view.rows(why)
    assert [(row.what, row.change) for row in found] == [
        ("gap longer", "+4.500 ms"),
        ("kernel longer", "+240.0 µs"),
    ]
    assert hidden == ""
    gone = msgspec.structs.replace(why.gaps[0], count=(1, 0), us=(9000.0, 0.0))
    grew_first, _ = why_view.rows(msgspec.structs.replace(why, gaps=[gone, *why.gaps]))
    assert [row.what for row in grew_first] == ["gap longer", "kernel longer", "gap gone"]
    many = msgspec.structs.replace(why, gaps=why.gaps * 30)
    found, hidden = why_view.rows(many)
    assert len(found) == 12
    assert hidden == "19 smaller changes (+81.24 ms in all) in report.json."


@pytest.mark.parametrize(
    ("after_ms", "said"),
    [
        (8.64, ""),
        (8.66, ""),
        (
            10.4,
            "The time of all kernels changed by +2.000 ms, of those that are listed by +240.0 µs: the others",
        ),
    ],
)
def test_what_kernels_take_longer_without_rows_is_told_beside_them(after_ms, said):
    why = msgspec.structs.replace(verdicts.explained(), kernel_ms=(8.4, after_ms))
    assert why_view.elsewhere(why).startswith(said)
    assert bool(why_view.elsewhere(why)) == bool(said)
