"""What a Python start prepares: NVTX's way to CUPTI, and a standby that promises nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ai_prof.collect.autostart import CUPTI_WHEELS, NVTX, lead_nvtx

if TYPE_CHECKING:
    from pathlib import Path

OURS = ("AI_PROF", "NVTX", "CUDA_INJ")
SHOW = f"import os; print({{k: v for k, v in os.environ.items() if k.startswith({OURS})}})"


def put(folder: Path, wheel: str) -> str:
    path = folder / wheel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


@pytest.mark.parametrize("wheel", CUPTI_WHEELS)
def test_nvtx_is_led_to_the_only_libcupti(
    wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path)])
    path = put(tmp_path, wheel)
    environ: dict[str, str] = {}
    lead_nvtx(environ)
    assert environ == {NVTX: path}


def test_where_two_could_be_the_programs_nvtx_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for wheel in CUPTI_WHEELS:
        put(tmp_path, wheel)
    environ: dict[str, str] = {}
    lead_nvtx(environ)
    assert not environ


def test_the_libcupti_asked_for_wins_and_another_tools_choice_stays(tmp_path: Path) -> None:
    asked = put(tmp_path, "libcupti.so")
    environ = {"AI_PROF_CUPTI": asked}
    lead_nvtx(environ)
    assert environ[NVTX] == asked
    environ[NVTX] = "/nsys.so"
    lead_nvtx(environ)
    assert environ[NVTX] == "/nsys.so"


def test_standby_loads_the_library_and_names_no_capture() -> None:
    bare = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env={**bare, "AI_PROF_ENABLE": "standby"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = eval(done.stdout)  # noqa: S307 - our own child's repr
    assert set(seen) == {"AI_PROF_ENABLE", "CUDA_INJECTION64_PATH"}
