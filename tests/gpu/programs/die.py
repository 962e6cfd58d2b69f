"""Launches kernels for four seconds, then leaves without any clean-up. Prints CLOCK_MONOTONIC at its end."""

import os
import time

import torch

x = torch.zeros(1 << 20, device="cuda")
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(100):
        x.add_(1)
    torch.cuda.synchronize()
print(time.monotonic_ns(), flush=True)
os._exit(7)
