"""The ranges that findings hold figures to. Ratios are shares of the window."""

from __future__ import annotations

BUSY_HEALTHY, BUSY_STARVED = 0.85, 0.70
GAP_HEALTHY, GAP_STARVED = 0.15, 0.30
KERNEL_HEALTHY_US, KERNEL_FRAGMENTED_US = 50.0, 20.0
OVERLAP_HEALTHY = 0.80
NOTABLE = 0.02  # shares below this are not worth a finding
EXPOSED = 0.05  # shares of communication or copies alone from which on they are a warning
