"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# A shell that starts the tests in the background has SIGINT ignored, and programs that they start and
# interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
