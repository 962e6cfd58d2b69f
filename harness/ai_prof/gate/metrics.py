"""The one table of what the gate compares: unit, direction, scale and floors of every metric."""

from __future__ import annotations

import math
from enum import Enum
from typing import Literal

import msgspec

Backend = Literal["cuda", "opencl"]
Policy = Literal["fail", "warn", "ignore"]


class Scale(str, Enum):
    """How two values compare: as a ratio (times) or as a difference (shares)."""

    LOG = "log"
    RAW = "raw"


class Floor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a change must exceed to matter, both at once.

    `relative` is a share of the baseline's value, `absolute` is in the metric's own unit.
    """

    relative: float = 0.0
    absolute: float = 0.0


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table.

    `direction` is +1 where larger is worse, -1 where smaller is worse, 0 where either may be.
    `role` says whether it is a count per iteration, compared exactly, a total, compared by tests, or a
    place of the iteration, found by the aligned profile.
    `alone` says whether it may fail a build by itself.
    """

    key: str
    label: str
    unit: str
    direction: int
    scale: Scale = Scale.LOG
    floor: Floor = Floor()
    role: Literal["structure", "total", "profile"] = "total"
    alone: bool = True

    def y(self, value: float, floor: Floor | None = None) -> float:
        """The value on the scale of the tests: ln(value + absolute floor), or the value itself.

        The absolute floor is added so that a time of 0 has a place on the scale and changes far below
        the floor carry no weight.
        """
        if self.scale is Scale.RAW:
            return value
        return math.log(value + (floor or self.floor).absolute)

    def value(self, y: float, floor: Floor | None = None) -> float:
        """The inverse of `y`; never below 0."""
        if self.scale is Scale.RAW:
            return y
        return max(0.0, math.exp(y) - (floor or self.floor).absolute)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What `workload.toml` and the configuration override for one workload.

    `promised` names the counts that are the same in every iteration of every run.
    """

    floors: dict[str, Floor] = {}
    policy: dict[str, Policy] = {}
    promised: tuple[str, ...] = ()

    def over(self, project: Rules) -> Rules:
        """These rules, and the project's where these say nothing."""
        return Rules(
            floors={**project.floors, **self.floors},
            policy={**project.policy, **self.policy},
            promised=self.promised,
        )

    def floor(self, metric: Metric) -> Floor:
        """The floor that holds for this workload."""
        return self.floors.get(metric.key, metric.floor)

    def policy_of(self, key: str) -> Policy:
        """What a regression of this metric does to the build."""
        return self.policy.get(key, "fail")


_TIME = Floor(relative=0.01, absolute=0.020)  # 1 % and 20 us, in ms
_WORK = Floor(relative=0.01)
_POINT = Floor(absolute=0.01)
_PLACE = Floor(absolute=20.0)  # us an iteration


def _count(key: str, label: str, unit: str = "per iteration") -> Metric:
    return Metric(key=key, label=label, unit=unit, direction=1, scale=Scale.RAW, role="structure")


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric(key="iteration_ms", label="iteration latency", unit="ms", direction=1, floor=_TIME),
        Metric(key="kernel_time_ms", label="kernel time per iteration", unit="ms", direction=1, floor=_WORK),
        # Longer kernels are worse where they add up to more kernel time, shorter ones where there are more
        # of them: the mean alone can't tell either from a good change.
        Metric(
            key="kernel_mean_us", label="kernel mean time", unit="us", direction=0, floor=_WORK, alone=False
        ),
        Metric(key="gap_ms", label="gap time per iteration", unit="ms", direction=1, floor=_TIME),
        Metric(key="gap", label="gap ratio", unit="ratio", direction=1, scale=Scale.RAW, floor=_POINT),
        # What is not busy is gap or copies: gap ratio, overlap or latency must carry it.
        Metric(
            key="kernel_busy",
            label="GPU busy",
            unit="ratio",
            direction=-1,
            scale=Scale.RAW,
            floor=_POINT,
            alone=False,
        ),
        Metric(
            key="copy_compute_overlap",
            label="copy-compute overlap",
            unit="ratio",
            direction=-1,
            scale=Scale.RAW,
            floor=_POINT,
        ),
        Metric(
            key="host_profile",
            label="host time by place",
            unit="us",
            direction=1,
            floor=_PLACE,
            role="profile",
        ),
        Metric(
            key="kernel_profile",
            label="kernel time by place",
            unit="us",
            direction=1,
            floor=_PLACE,
            role="profile",
        ),
        _count("kernels", "kernels"),
        _count("copies", "copies"),
        _count("copy_bytes", "bytes copied", "bytes per iteration"),
        _count("syncs", "synchronizes"),
        _count("graph_launches", "graph launches"),
    )
}

TOTALS: tuple[Metric, ...] = tuple(m for m in METRICS.values() if m.role == "total")
COUNTS: tuple[Metric, ...] = tuple(m for m in METRICS.values() if m.role == "structure")

# The standard deviation of a session's value (the median of its three runs) on the scale of the test, for
# baselines too young to know their own. cuda: identical training and decoding processes on one H200 (host
# time varied by 15 % of its ln, kernel time by 0.3 %). opencl: the largest spread over ten processes of
# each reference workload, PoCL on two cores of an idle shared host; overlap varied less and is bounded.
PROVISIONAL_SD: dict[Backend, dict[str, float]] = {
    "cuda": {
        "iteration_ms": 0.15,
        "kernel_time_ms": 0.003,
        "kernel_mean_us": 0.003,
        "gap_ms": 0.25,
        "gap": 0.03,
        "kernel_busy": 0.03,
        "copy_compute_overlap": 0.05,
    },
    "opencl": {
        "iteration_ms": 0.05,
        "kernel_time_ms": 0.04,
        "kernel_mean_us": 0.04,
        "gap_ms": 0.12,
        "gap": 0.013,
        "kernel_busy": 0.013,
        "copy_compute_overlap": 0.02,
    },
}
