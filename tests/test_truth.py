"""The measure that recorded captures are held to, itself held to simulated programs whose truth is known."""

from __future__ import annotations

import aiprof_file as af
import numpy as np
import pytest
from truth import agreement, marked_starts

from ai_prof.trace.readers import native

LENGTH = 1_000_000
TRUE = np.arange(100, dtype=np.int64) * LENGTH


def test_a_marker_stands_for_the_first_operation_launched_after_it(tmp_path):
    program, marks = af.Program(), []
    for _ in range(10):
        program.work(50_000)
        marks.append(program.now)
        program.iteration()
        for k in range(6):
            program.launch(f"k{k}", 400_000)  # the host runs far ahead of the device
    trace = native.read([program.write(tmp_path)])
    assert marked_starts(trace, [*marks, program.now]).tolist() == program.starts


def test_a_constant_offset_is_no_error():
    found = agreement(TRUE + 700_000, TRUE)
    assert (found.found, found.extra) == (100, 0)
    assert abs(found.offset_ns) in {700_000, 300_000}


def test_beyond_the_tolerance_it_is_not_found():
    odd = TRUE.copy()
    odd[7] += 11_000
    found = agreement(odd, TRUE)
    assert (found.found, found.extra) == (99, 1)


@pytest.mark.parametrize(("step", "found", "extra"), [(2, 50, 0), (1, 100, 0)])
def test_missed_iterations_count(step, found, extra):
    result = agreement(TRUE[::step], TRUE)
    assert (result.found, result.extra) == (found, extra)


def test_layers_are_extra():
    half = np.sort(np.concatenate((TRUE, TRUE + LENGTH // 2)))
    assert agreement(half, TRUE).found == 100
    assert agreement(half, TRUE).extra == 99


def test_nothing_found_is_no_share():
    assert agreement(np.zeros(0, np.int64), TRUE).share == 0
