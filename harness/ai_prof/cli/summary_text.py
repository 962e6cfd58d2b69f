"""The summary as a few lines for people: the cause first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ai_prof.timeline.findings import Finding
    from ai_prof.timeline.summary import DeviceSummary, Summary

_FINDINGS = 3
_CAUSES = {
    "launch": "the host launching",
    "sync": "the host blocked in synchronizes",
    "data": "waiting for data",
    "host": "the host busy outside the driver",
    "wait": "launched work waiting on the device",
    "device": "the device's own latency",
    "unknown": "unknown (no host calls recorded)",
}


def render(summary: Summary) -> str:
    """Ten lines or so for one device, five more for each further one."""
    if not summary.devices:
        return f"No GPU work: {summary.reason}"
    lines = [line for device in summary.devices for line in _device(device)]
    shown = [finding for finding in summary.findings if finding.saves_ms > 0 or finding.severity != "info"]
    for number, finding in enumerate(shown[:_FINDINGS], 1):
        lines.append(f"{number}. {finding.id} ({finding.severity}){_saves(finding)}: {finding.actions[0]}")
    lines += [
        f"Note: {f.id}: {f.actions[0]}" for f in summary.findings if f.severity == "info" and f not in shown
    ]
    if summary.tag:
        lines.append(f"This workload is {summary.tag}.")
    return "\n".join(lines)


def _device(device: DeviceSummary) -> list[str]:
    causes = sorted(device.gap_causes.items(), key=lambda item: -item[1])
    named = ", ".join(f"{_CAUSES[c]} {share:.1%}" for c, share in causes if share >= 0.001) or "no gaps"
    found = device.iterations
    window = f"{device.window_ns / 1e6:.3f} ms from first to last operation"
    if device.window == "iterations":
        spread = f"p5 {found.p5_ms:.3f}, p95 {found.p95_ms:.3f}"
        how = f"by {found.method}, confidence {found.confidence:.2f}"
        window = f"{found.count} iterations of {found.median_ms:.3f} ms ({spread}; {how})"
    overlap = "no copies" if device.copy_compute_overlap is None else f"{device.copy_compute_overlap:.0%}"
    rank = "" if device.rank is None else f" (rank {device.rank})"
    busy = f"busy {device.kernel_busy:.1%} (healthy above 85 %), copies alone {device.copy_only:.1%}"
    kernels = f"{device.kernel_count} kernels, mean {device.kernel_mean_us:.1f} us (healthy above 50)"
    spread = f"p50 {device.kernel_p50_us:.1f}, p95 {device.kernel_p95_us:.1f}"
    hosts = f"{device.sync_count} synchronizes, {device.streams} streams"
    return [
        f"Device {device.device}{rank} {device.name}: idle {device.gap:.1%} of the time: {named}",
        f"  over {window}",
        f"  {busy}, gap {device.gap:.1%} (healthy below 15 %)",
        f"  {kernels}, {spread}; {device.tiny_kernel_share:.0%} under 20 us",
        f"  copy-compute overlap {overlap} (healthy above 80 %), {hosts}",
    ]


def _saves(finding: Finding) -> str:
    return f", up to {finding.saves_ms:.3f} ms an iteration" if finding.saves_ms else ""
