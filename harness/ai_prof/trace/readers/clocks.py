"""From a device's or the host's own clock to CLOCK_MONOTONIC, exactly in int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.trace.readers.native_format import HOST_CLOCK

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.trace.model import I64
    from ai_prof.trace.readers.native_records import Rows

_CHUNK = 1 << 16  # times mapped at once: what is made on the way stays in the cache
_SPACING_NS = 50_000_000  # closer readings add more noise than drift
_RATE_SPAN_NS = 500_000_000  # shorter calibrations say nothing of the rate outside them


@dataclass(frozen=True, slots=True)
class ClockMap:
    """Piecewise linear: (n,) readings of `source` and what `target` read then; n = 0 is the identity."""

    source: I64
    target: I64

    def __call__(self, times: I64) -> I64:
        """Times on the target's clock. Floats carry only the drift since the nearest reading."""
        mapped = times.astype(np.int64)
        if len(self.source):
            drift = _drift(self.source, self.target)
            for begin in range(0, len(times), _CHUNK):
                mapped[begin : begin + _CHUNK] += self._shift(mapped[begin : begin + _CHUNK], drift)
        return mapped

    def _shift(self, times: I64, drift: npt.NDArray[np.float64]) -> I64:
        """What to add to times, (n,)."""
        segment = np.clip(np.searchsorted(self.source, times, side="right") - 1, 0, len(self.source) - 1)
        # Before the first reading its own segment's drift, after the last the whole calibration's.
        since = times - self.source[segment]
        rate = np.where(times < self.source[0], drift[-1], drift[segment])
        shift: I64 = (self.target - self.source)[segment] + np.rint(since * rate).astype(np.int64)
        return shift


def clock_map(clocks: Rows, clock: int) -> ClockMap | None:
    """The map for one clock of a file; None when the file never read that clock.

    Readings that took long are left out: an interrupted one can be off by as much.
    """
    rows = clocks[clocks["clock"] == clock]
    if not len(rows):
        return None
    rows = rows[rows["uncertainty"] <= 8 * int(rows["uncertainty"].min()) + 1000]
    rows = rows[np.argsort(rows["source"], kind="stable")]
    kept = [0]
    for i, source in enumerate(rows["source"].tolist()):
        if source - int(rows["source"][kept[-1]]) >= _SPACING_NS:
            kept.append(i)
    return ClockMap(rows["source"][kept].astype(np.int64), rows["monotonic"][kept].astype(np.int64))


def device_clock_map(clocks: Rows, device: int) -> ClockMap | None:
    """A device's own calibration, or the host's, whose clock CUDA devices share."""
    return clock_map(clocks, device) or clock_map(clocks, HOST_CLOCK)


def realtime_offset(clocks: Rows) -> int | None:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC: the median over all readings."""
    if not len(clocks):
        return None
    offsets = np.sort(clocks["realtime"] - clocks["monotonic"])
    return int(offsets[len(offsets) // 2])


def _drift(source: I64, target: I64) -> npt.NDArray[np.float64]:
    """Relative rate difference in each segment, and outside the calibration (last entry); (n,)."""
    span = int(source[-1] - source[0])
    outside = (int(target[-1] - target[0]) - span) / span if span >= _RATE_SPAN_NS else 0.0
    steps = np.diff(source)
    return np.append((np.diff(target) - steps) / np.maximum(steps, 1), outside)
