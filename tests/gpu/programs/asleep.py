"""Launches a hundred kernels and waits, then leaves a long one with twenty behind it in flight for 7 seconds.

Usage: asleep.py WAY, how it ends meanwhile: exit, raise, leave (os._exit), int, term or kill; or how it waits
for them: wait, or sleep, which it does for 5 seconds first.
"""

import os
import signal
import sys
import time

import torch

way = sys.argv[1]
x = torch.zeros(1 << 10, device="cuda")
for _ in range(100):
    x.add_(1)
torch.cuda.synchronize()
time.sleep(1.5)  # what has ended is on the disk
torch.cuda._sleep(14_000_000_000)
for _ in range(20):
    x.mul_(2)
if way in {"sleep", "wait"}:
    time.sleep(5 if way == "sleep" else 0)
    torch.cuda.synchronize()
elif way == "leave":
    os._exit(0)
elif way == "raise":
    raise RuntimeError("as a program may end")
elif way != "exit":
    os.kill(os.getpid(), {"int": signal.SIGINT, "term": signal.SIGTERM, "kill": signal.SIGKILL}[way])
    time.sleep(1)  # Python answers an interrupt between two of its instructions
