"""The last calibration of a machine's baselines, in a file beside them; reports show its age."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ai_prof.baselines import store
from ai_prof.baselines.files import read_file, write_file
from ai_prof.errors import BaselineError
from ai_prof.gate.model import LastCalibration
from ai_prof.json_text import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = f"machine{store.CALIBRATED}"


class _File(msgspec.Struct, kw_only=True):
    schema: Literal["ai-prof/calibrated/1"] = "ai-prof/calibrated/1"
    last: LastCalibration


def save(folder: Path, last: LastCalibration) -> None:
    """Keep a calibration beside the baselines in `folder`. Raises BaselineError where it can't be written."""
    text = msgspec.json.format(msgspec.json.encode(_File(last=last)), indent=1)
    write_file(folder / FILE, text + b"\n")


def latest(folders: Iterable[Path]) -> LastCalibration | None:
    """The last calibration in the folders; None without one. Raises BaselineError for a broken file."""
    found = [_load(folder / FILE) for folder in folders if (folder / FILE).exists()]
    return max(found, key=lambda each: each.when, default=None)


def _load(path: Path) -> LastCalibration:
    try:
        return msgspec.json.decode(read_file(path), type=_File).last
    except (OSError, *UNREADABLE) as error:
        msg = f"{path}: is no calibration ({error}): remove it, and run `ai-prof calibrate`"
        raise BaselineError(msg) from error
