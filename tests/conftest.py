"""What holds for every test."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has SIGINT ignored, and programs that they start and
# interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
