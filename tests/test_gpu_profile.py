"""The profile that a test asserts by: a capture that misses something is none, and the remedy fits."""

from __future__ import annotations

import aiprof_file as af
import pytest

from ai_prof.errors import EnvironmentInvalidError
from ai_prof.runs import gpu_profile

ERROR = 5  # END's reason


@pytest.mark.parametrize(
    ("counts", "remedy"),
    [({"cupti": 7}, "7 records lost. Raise AI_PROF_BUFFER_MB"), ({"invalid": 7}, "AI_PROF_GRAPHS=graph")],
)
def test_what_lost_records_says_what_to_do(counts, remedy, tmp_path):
    program = af.Program()
    program.launch("k", 1_000)
    program.loss(af.KERNEL, 1, **counts)
    program.write(tmp_path)
    with pytest.raises(EnvironmentInvalidError, match=remedy):
        gpu_profile.read(tmp_path)


def test_where_another_tool_holds_cupti_no_buffer_helps(tmp_path):
    held = "another tool holds CUPTI in this process: run without it"
    af.Program(errors=[held]).write(tmp_path, reason=ERROR)
    with pytest.raises(EnvironmentInvalidError) as raised:
        gpu_profile.read(tmp_path)
    assert held in str(raised.value)
    assert "BUFFER" not in str(raised.value)
