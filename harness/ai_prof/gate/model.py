"""What the gate compares and what it says: runs, cells, verdicts. Plain data, no I/O."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import msgspec

from ai_prof.bounds import Amount, Chance, Count, Number, Positive
from ai_prof.gate import facts
from ai_prof.gate.metrics import METRICS
from ai_prof.timeline.diff_kernels import KernelChange
from ai_prof.timeline.typical import Typical

REPORT_SCHEMA = "ai-prof/report/1"
Told = str | int | bool | None
FilePath = Annotated[str, msgspec.Meta(pattern=r"^[^\0]*$")]


class Reason(str, Enum):
    """Why a verdict is what it is."""

    PASS = "pass"  # noqa: S105 - no password
    REGRESSED = "regressed"
    IMPROVED = "improved"
    STRUCTURE_CHANGED = "structure-changed"
    ACCEPTED = "accepted"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no-baseline"
    INCOMPARABLE = "incomparable"
    INVALID_ENVIRONMENT = "invalid-environment"
    CAPTURE_INCOMPLETE = "capture-incomplete"
    FAILED = "failed"  # the workload crashed or hung
    NO_GPU_WORK = "no-gpu-work"  # it ran, and the capture holds no device work
    SKIPPED = "skipped"  # what it requires is not here


class Evidence(str, Enum):
    """What a verdict stands on."""

    STRUCTURE = "structure"  # an exact count
    SCREEN = "screen"  # stored baseline against three runs; flags, does not fail
    CONFIRMED = "confirmed"  # fresh interleaved runs of base and head, permutation test
    REPEATED = "repeated"  # base could not be run again: the flag stood in two halves
    NONE = "none"


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process launch of a workload under capture: one value per metric.

    `structure` holds counts per iteration: an int where every iteration had the same, None where they
    differ. `kernels` is the multiset of normalised kernel names of one iteration, None likewise.
    `metrics` holds None where a metric does not exist for the run (no copies: no overlap). `gap_causes_ms`
    are means over iterations and add up to the mean gap, while the metric `gap_ms` is the median one;
    `sync_shadow_ms` is a part of that mean: what there would not be if synchronizes did not block the host.
    `iteration_ms` are lengths of iterations in order: of thousands a part, drawn by chance.
    `session` is a name that ends with the host's boot, as "20260102T030405Z-0a1b2c3d".
    `profile` is the digest of the run's aligned profile, which is kept beside the runs. `captured` says how
    the capture was taken, as "api, graphs by node".
    """

    workload: str
    session: str
    order: Count
    host: str
    started: str
    commit: str | None = None
    dirty: bool = False
    iterations: Count = 0
    metrics: dict[str, Number | None] = {}
    structure: dict[str, Count | None] = {}
    kernels: dict[str, Count] | None = None
    iteration_ms: list[Amount] = []
    gap_causes_ms: dict[str, Amount] = {}
    sync_shadow_ms: Amount = 0.0
    environment: dict[str, Any] = {}
    reported: dict[str, Count] | None = None
    capture: FilePath | None = None
    profile: str | None = None
    captured: str = ""
    problem: Reason | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        """Refuse, of a file, conditions that no report could show."""
        if self.environment:
            facts.check(self.environment, facts.Conditions)


class Acceptance(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"old": "from", "new": "to"}
):
    """A change of one metric or count that a person wants: `old` and `new` are values in its unit.

    `place` names the work that a metric of the aligned profile is about, or the anchor. Who accepted it, why
    and when (RFC 3339, UTC). `report` is the run id of the report that showed it, which measured `commit`, if
    it is `dirty` with changes on top.
    """

    metric: str
    old: Number
    new: Number
    who: str
    why: str
    when: str
    commit: str | None = None
    dirty: bool = False
    report: str = ""
    place: str = ""

    def __post_init__(self) -> None:
        """Refuse, of a file, a metric that can't be compared."""
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}")


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """The pinned runs that drift is held against: from the first refresh on, and never moved by one.

    `accepted` are the changes that people wanted since. `when` and `commit` are of the pinned runs.
    """

    when: str
    commit: str | None
    runs: list[Run]
    accepted: list[Acceptance] = []


class Cell(msgspec.Struct, kw_only=True):
    """One workload x metric. Times compare as ln ratios, ratios as differences.

    `effect` and `interval` are relative changes (0.05 is +5 %) for times and differences (0.05 is 5
    points) for ratios, positive when the value grew. `mde` is the smallest such effect found with 80 %
    power, `missed_us` that growth of one place of the profile, us an iteration, at half of the places, and
    `missed_anywhere_us` at all of them. `p` is the evidence's own, towards better where the metric improved;
    `p_adjusted` after max-T and Holm, None where none applies.
    `judged` is False where a provisional baseline could not have shown the change: a pass in name only.
    `place` names the work that a metric of the aligned profile is about.
    """

    metric: str
    unit: str
    reason: Reason
    evidence: Evidence = Evidence.NONE
    baseline: Number | None = None
    candidate: Number | None = None
    effect: Number | None = None
    interval: tuple[Number, Number] | None = None
    floor: Amount | None = None
    p: Amount | None = None
    p_adjusted: Amount | None = None
    mde: Number | None = None
    missed_us: Number | None = None
    missed_anywhere_us: Number | None = None
    flagged: bool = False
    judged: bool = True
    provisional: bool = False
    place: str = ""
    notes: list[str] = []
    why: str = ""


class StructureChange(msgspec.Struct, kw_only=True):
    """A per-iteration count or kernel that differs: `name` is `kernels`, `syncs` or `kernel:NAME`."""

    name: str
    baseline: Count
    candidate: Count
    reason: Reason
    why: str = ""


class GapChange(msgspec.Struct, frozen=True):
    """The gaps of an iteration between two operations (normalised names): how many, and us in all.

    `count` and `us` are before and after, means over iterations. `causes` has the us of each cause, the
    largest first, on the side that waits longer, and `shadow_us` what of them lies in the shadow of
    synchronizes; `calls_ms` what the host called in the longest gap of the
    iteration to draw after, empty where that is not known.
    """

    before: str
    after: str
    count: tuple[Amount, Amount]
    us: tuple[Amount, Amount]
    causes: dict[str, Amount] = {}
    calls_ms: dict[str, Amount] = {}
    shadow_us: Amount = 0.0

    def __post_init__(self) -> None:
        """Refuse, of a file, a change of nothing, and time of no gap."""
        if not any(self.us) or any(us and not count for us, count in zip(self.us, self.count, strict=True)):
            raise ValueError("gaps of no time, or time of no gaps")

    @property
    def change_us(self) -> float:
        """How much longer the gaps got in all."""
        return self.us[1] - self.us[0]


class SyncChange(msgspec.Struct, frozen=True):
    """The waits of a host in one call after one operation (normalised name): how many, before and after."""

    call: str
    after: str
    count: tuple[Amount, Amount]


class Why(msgspec.Struct, kw_only=True):
    """What differs between two sides' iterations, and one of each to draw. `sides` names whose runs they are.

    `kernels`, `gaps` and `syncs` hold what changed, the largest change first; `kernel_ms` is the time of all
    kernels, before and after. Times are means over iterations, and medians of those over runs. A side's
    iteration is None where it was not kept.
    """

    sides: tuple[str, str]
    kernel_ms: tuple[Amount, Amount] = (0.0, 0.0)
    kernels: list[KernelChange] = []
    gaps: list[GapChange] = []
    syncs: list[SyncChange] = []
    before: Typical | None = None
    after: Typical | None = None


class WorkloadVerdict(msgspec.Struct, kw_only=True):
    """Everything about one workload that a report shows.

    `flagged` means fresh runs must settle it; until then its reason is inconclusive. `drift` says that the
    flag is about the anchor, which no fresh runs of base can settle.
    """

    workload: str
    reason: Reason
    why: str = ""
    flagged: bool = False
    drift: bool = False
    provisional: bool = False
    evidence: Evidence = Evidence.NONE
    cells: list[Cell] = []
    structure: list[StructureChange] = []
    notes: list[str] = []
    accepted: list[Acceptance] = []  # what was honoured
    anchor: Anchor | None = None  # what drift was held against
    baseline: dict[str, Told] = {}  # commit, sessions, runs, recorded, path, sha256
    baseline_runs: list[Run] = []
    candidate_runs: list[Run] = []
    confirm_base: list[Run] = []
    confirm_head: list[Run] = []
    explained: Why | None = None  # of what regressed or is not settled
    host_factor: Positive | None = None  # how much longer the host took for the same submissions than before

    def cell(self, metric: str) -> Cell | None:
        """Its cell of a metric; None where that was not compared."""
        return next((cell for cell in self.cells if cell.metric == metric), None)

    @property
    def unjudged(self) -> bool:
        """Whether it passes in name only: its young baseline could not have shown its latency's change."""
        latency = self.cell("iteration_ms")
        return self.reason is Reason.PASS and latency is not None and not latency.judged


class LastCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """How often the gate failed builds without a change, drawn from stored runs: `failed` of `draws`.

    `when` is RFC 3339, UTC; `bound` the upper 95 % bound of the rate.
    """

    when: str
    draws: Annotated[int, msgspec.Meta(ge=1)]
    failed: Count
    bound: Chance

    def __post_init__(self) -> None:
        """Refuse, of a file, a time that is none."""
        msgspec.convert(self.when, facts.Time)


class BuildVerdict(msgspec.Struct, kw_only=True):
    """The whole gated build; what `report.json` holds."""

    schema: str = REPORT_SCHEMA
    run_id: str
    started: str
    finished: str
    exit_code: int
    summary: str  # one line for people
    device: str
    machine_key: str
    machine: dict[str, Any] = {}
    commit: str | None = None
    dirty: bool = False
    base: str | None = None
    regress: str | None = None
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01
    workloads: list[WorkloadVerdict] = []
    notes: list[str] = []
    calibration: LastCalibration | None = None
    version: str = ""

    def __post_init__(self) -> None:
        """Refuse, of a file, facts of a machine that no report could show, and a time that is none."""
        facts.check(self.machine, facts.Machine)
        if self.calibration is not None:  # its age is told
            msgspec.convert(self.started, facts.Time)
