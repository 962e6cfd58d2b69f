from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_prof.report import format as fmt


@pytest.mark.parametrize(
    ("x", "unit", "shown"),
    [
        (12.4, "ms", "12.40 ms"),
        (12.3456, "ms", "12.35 ms"),
        (9.99999, "ms", "10.00 ms"),
        (0.01234, "ms", "0.01234 ms"),
        (84.0, "us", "84.00 µs"),
        (1234567.0, "us", "1,234,567 µs"),
        (0.8312, "ratio", "83.1 %"),
        (0.0, "ms", "0 ms"),
        (None, "ms", fmt.NOTHING),
        (math.nan, "ms", fmt.NOTHING),
        (3.0, "", "3.000"),
    ],
)
def test_a_value_has_its_unit(x, unit, shown):
    assert fmt.value(x, unit) == shown


@pytest.mark.parametrize(
    ("x", "unit", "shown"),
    [
        (0.3812, "ms", "+38.1 %"),
        (-0.031, "ms", "-3.1 %"),
        (-0.00001, "ms", "+0.0 %"),
        (0.219, "ratio", "+21.9 pts"),
        (25.0, "ms", "+2,500 %"),
        (None, "ms", fmt.NOTHING),
    ],
)
def test_times_change_in_per_cent_and_ratios_in_points(x, unit, shown):
    assert fmt.change(x, unit) == shown


def test_interval_and_threshold():
    assert fmt.interval((-0.012, 0.034), "ms") == "-1.2 to +3.4 %"
    assert fmt.interval((-math.inf, 0.034), "ratio") == "unbounded to +3.4 pts"
    assert fmt.interval(None, "ms") == fmt.NOTHING
    assert fmt.threshold(0.01, "ratio") == "1.0 pts"
    assert fmt.threshold(9.5, "ms") == "950.0 %"
    assert fmt.threshold(41315.15, "ms") == "1,000 % and more"
    assert fmt.threshold(41315.15, f"{fmt.DELTA}us") == "41,315 µs"


@pytest.mark.parametrize(
    ("p", "shown"),
    [
        (0.00001, "< 0.0001"),
        (0.0011, "0.0011"),
        (0.0344, "0.034"),
        (0.41, "0.41"),
        (1.0, "1.00"),
        (None, fmt.NOTHING),
    ],
)
def test_probability(p, shown):
    assert fmt.probability(p) == shown


def test_counts_and_bytes():
    assert fmt.count(1234, "kernels") == "1,234"
    assert fmt.count(4_194_304, "copy_bytes") == "4.194 MB"
    assert fmt.count(12, "copy_bytes") == "12 B"
    assert fmt.count_change(211, 275, "kernels") == "+64"
    assert fmt.count_change(2, 1, "syncs") == "-1"


def test_prose_keeps_numbers_with_their_units_and_names_as_they_are():
    assert fmt.typeset("grew 40 us (1 -> 41 us): 3 users") == "grew 40 µs (1 → 41 µs): 3 users"
    told = "grew 8.9 points, 1.5 ms or 38 % in 3 syncs of 2 MB"
    assert fmt.unbroken(told).replace("\N{NO-BREAK SPACE}", "_") == (
        "grew 8.9_points, 1.5_ms or 38_% in 3 syncs of 2_MB"
    )


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_a_number_keeps_four_significant_digits(x):
    shown = float(fmt.number(x).replace(",", ""))
    assert shown == pytest.approx(x, rel=5.01e-4)


@given(st.text(max_size=300), st.integers(min_value=8, max_value=100))
def test_a_shortened_name_keeps_its_ends(name, width):
    shown = fmt.shorten(name, width)
    plain = " ".join(name.split())
    assert len(shown) <= width
    assert shown == plain or any(
        plain.startswith(shown[:at]) and plain.endswith(shown[at + 1 :])
        for at, letter in enumerate(shown)
        if letter == "…"
    )


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "Host time between memcpy device to host and memcpy host to device (3 operations)"),
        (79, "Host time between memcpy device to host and memcpy…to device (3 operations)"),
        (60, "Host time between memcpy device to host…(3 operations)"),
    ],
)
def test_of_names_in_a_row_no_word_is_cut(width, shown):
    name = "Host time between memcpy device to host and memcpy host to device (3 operations)"
    assert fmt.shorten(name, width) == shown


@given(st.text())
def test_printable_text_is_legal_xml(text):
    assert all(c in "\n\t" or 0x20 <= ord(c) < 0x7F or ord(c) >= 0xA0 for c in fmt.printable(text))
    assert "\x1b" not in fmt.printable(text)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("memcpy host to device", "memcpy host to device"),
        ("at::native::reduce_kernel<#, #, at::native::Sum<float> >", "reduce_kernel<Sum<float>>"),
        ("void softmax<c#::BFloat#, float, #, true, false>", "void softmax<BFloat#, float>"),
        (
            "vectorized<#, at::native::copy_cuda(at::TensorIteratorBase&)::lambda, std::array<char*, #ul> >",
            "vectorized<copy_cuda>",
        ),
        ("cudnn::convert_dq_to_#bits<true>", "convert_dq_to_#bits"),
    ],
)
def test_of_a_template_what_tells_it_from_others_stays(name, short):
    assert fmt.operation(name) == short


def test_a_long_template_is_cut_at_its_end_and_another_name_in_its_middle():
    assert fmt.operation("kernel<Functor" + "o" * 100 + ">", 20) == "kernel<Functorooooo…"
    assert fmt.operation("nvjet_sm90_tst_128x256_64x4_2x1_h_bz_coopA_TNT", 20) == "nvjet_sm90_ts…pA_TNT"


@given(st.text(max_size=300), st.integers(10, 100))
def test_no_name_is_longer_than_its_width(name, width):
    assert len(fmt.operation(name, width)) <= width
