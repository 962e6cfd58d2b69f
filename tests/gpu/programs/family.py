"""A program with children: forked ones that exit and that execute, and one with its own CUDA work.

All of them leave while this one works on the GPU. Prints the sum of their exit codes.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

x = torch.zeros(1 << 10, device="cuda")
x.add_(1)
torch.cuda.synchronize()
codes = 0
for way in ("exit", "leave", "execute"):
    child = os.fork()
    if child == 0:
        if way == "execute":
            os.execv("/bin/true", ["true"])  # noqa: S606 - an execute after a fork is what is tried
        sys.exit() if way == "exit" else os._exit(0)
    codes += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
trainer = Path(__file__).with_name("train.py")
codes += subprocess.run([sys.executable, str(trainer), "5"], check=False).returncode
for _ in range(100):
    x.add_(1)
torch.cuda.synchronize()
print(codes)
