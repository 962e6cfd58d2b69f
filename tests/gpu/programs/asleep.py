"""Launches a hundred kernels and waits, then leaves a long one with twenty behind it in flight for seconds.

Usage: asleep.py [WAY], how it ends meanwhile: exit, raise, leave (os._exit), int, term or kill; without one
it waits.
"""

import os
import signal
import sys
import time

import torch

way = sys.argv[1] if len(sys.argv) > 1 else "wait"
x = torch.zeros(1 << 10, device="cuda")
for _ in range(100):
    x.add_(1)
torch.cuda.synchronize()
time.sleep(1.5)  # what has ended is on the disk
torch.cuda._sleep(14_000_000_000)
for _ in range(20):
    x.mul_(2)
if way == "wait":
    torch.cuda.synchronize()
elif way == "leave":
    os._exit(0)
elif way == "raise":
    raise RuntimeError("as a program may end")
elif way != "exit":
    os.kill(os.getpid(), {"int": signal.SIGINT, "term": signal.SIGTERM, "kill": signal.SIGKILL}[way])
    time.sleep(1)  # Python answers an interrupt between two of its instructions
