"""What the reports call things: metrics, counts, reasons, kinds of evidence, exit codes."""

from __future__ import annotations

import re
from typing import NamedTuple

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import Evidence, Reason

NEARLY_ALL, MOSTLY = 0.9, 0.6  # a cause with this share of a wait is named alone
WAITS = {
    "launch": "while the host issues calls",
    "sync": "while the host is blocked in a synchronize or a blocking copy",
    "data": "while the host prepares input",
    "host": "while the host is busy outside the device's API",
    "wait": "for another stream or an event",
    "device": "between operations that are queued",
    "unknown": "for a reason that was not recorded",
}
"""What the device waits for, by cause of the gap."""


class Word(NamedTuple):
    """How a reason is shown: its label, tone (a colour), mark (a shape) and meaning."""

    label: str
    tone: str
    mark: str
    meaning: str


REASONS: dict[Reason, Word] = {
    Reason.REGRESSED: Word(
        "regressed", "bad", "✕", "worse, by more than the floor, and the evidence is strong enough to fail"
    ),
    Reason.INCONCLUSIVE: Word(
        "inconclusive", "warn", "?", "flagged, but not settled within the budget of runs"
    ),
    Reason.FAILED: Word("failed", "broken", "!", "the workload crashed or hung"),
    Reason.INVALID_ENVIRONMENT: Word(
        "invalid environment",
        "broken",
        "!",
        "the machine was disturbed; this is neither a regression nor a pass",
    ),
    Reason.CAPTURE_INCOMPLETE: Word(
        "capture incomplete", "broken", "!", "records were lost, so nothing was judged"
    ),
    Reason.STRUCTURE_CHANGED: Word(
        "structure changed", "warn", "△", "the work itself changed; a warning, not a failure"
    ),
    Reason.IMPROVED: Word("improved", "good", "↓", "better, by more than the floor"),
    Reason.ACCEPTED: Word("accepted", "quiet", "✓", "a change that a person accepted, with a reason on file"),
    Reason.NO_BASELINE: Word("no baseline", "quiet", "○", "nothing stored to compare with"),
    Reason.NO_GPU_WORK: Word("no device work", "quiet", "○", "it ran, and the capture holds no device work"),
    Reason.INCOMPARABLE: Word("incomparable", "quiet", "○", "a baseline exists, but is of something else"),
    Reason.SKIPPED: Word("skipped", "quiet", "○", "what the workload requires is not here"),
    Reason.PASS: Word("unchanged", "pass", "✓", "no change that the evidence supports"),
}
"""In the order that reports show them."""

NOT_JUDGED = Word(
    "not judged", "quiet", "○", "a young baseline could not have shown this change: a pass in name only"
)
"""How an unchanged metric is shown whose comparison was too blind to count."""

NO_FINDING = Word(
    "no finding",
    "quiet",
    "○",
    "beyond the floor, and still no regression: chance explains it, or its row says what does",
)
"""How a metric is shown that passed though it moved beyond its floor."""

CUT_UP = Word(
    "shorter, not faster", "warn", "△", "kernels are shorter because the work is cut into more of them"
)
"""How the kernels' mean time is shown where it fell with a regression: read alone, it looks like a gain."""

NO_PLACE = Word("none stands out", "pass", "✓", "no place of the iteration differs from the others")
"""How the comparison by place is shown where it found nothing: all of them alike may be slower."""

FASTER = Word(
    "faster, not confirmed",
    "quiet",
    "↓",
    "better than the stored baseline by more than the floor; no fresh runs of both have looked at it",
)
"""How an improvement is shown that the screen alone has seen."""

EVIDENCE: dict[Evidence, tuple[str, str]] = {
    Evidence.STRUCTURE: (
        "exact count",
        "a count that is the same in every iteration of every run, and differs: no chance, so no p",
    ),
    Evidence.CONFIRMED: (
        "confirmed",
        "fresh runs of base and head, interleaved; p is of a permutation test of all that may fail alone",
    ),
    Evidence.REPEATED: (
        "repeated",
        "base could not be run again; the flag stood in two separate sets of candidate runs (weaker)",
    ),
    Evidence.SCREEN: (
        "screen",
        "three runs against the stored baseline; this flags, and never fails a build alone",
    ),
    Evidence.NONE: ("none", "nothing was compared"),
}
"""From strong to weak: label and meaning."""

EXITS = {
    0: "pass",
    1: "regression",
    2: "usage: wrong or unreadable input",
    3: "nothing to compare",
    4: "environment invalid, capture incomplete or a workload failed",
    5: "flagged, but not settled",
    70: "a fault of ai-prof itself",
}
FACTS = {
    "cpu": "CPU",
    "cpu_mhz": "CPU clock, MHz",
    "cuda": "CUDA",
    "ecc": "ECC",
    "ecc_errors": "memory errors that could not be corrected",
    "foreign_cores": "cores kept busy by other programs",
    "foreign_gpu_processes": "other processes on the GPU",
    "foreign_gpu_processes_during": "other processes that came to the GPU",
    "gpus": "GPU",
    "kernel": "operating system kernel",
    "load": "load average",
    "memory_bytes": "memory, bytes",
    "memory_clock_mhz": "memory clock, MHz",
    "mig": "MIG",
    "opencl": "OpenCL",
    "power_limit_mw": "power limit, mW",
    "power_mw": "power, mW",
    "python": "Python",
    "slowdowns": "throttling",
    "sm_clock_mhz": "SM clock, MHz",
    "temperature_c": "temperature, °C",
    "throttle_reasons": "reasons to throttle, NVML's bits",
    "uuid": "UUID",
}
"""What is recorded of machines and runs, where its key with spaces would not do."""

KERNEL = "kernel:"


def metric(key: str) -> str:
    """Return a metric's name for people, the key itself where it has none."""
    if key not in METRICS:
        return key
    label = METRICS[key].label
    return label[0].upper() + label[1:]


def place(name: str) -> str:
    """Begin a place's name like a row's, and say of how many operations it is the first."""
    said, _, where = name.rpartition(" (")
    count = re.match(r"\d+ operations", where)
    return said[:1].upper() + said[1:] + (f" ({count[0]})" if count else "")


def counted(key: str) -> str:
    """Return the name of a per-iteration count; `kernel:NAME` gives NAME."""
    return key[len(KERNEL) :] if key.startswith(KERNEL) else f"{metric(key)} per iteration"


def fact(key: str) -> str:
    """Return the name of a fact; of a nested one (`gpus.0.memory_bytes`), `GPU 0: memory, bytes`."""
    name = ""
    for part in key.split("."):
        word = FACTS.get(part, part.replace("_", " "))
        name += (f" {word}" if part.isdigit() else f": {word}") if name else word
    return name[:1].upper() + name[1:]
