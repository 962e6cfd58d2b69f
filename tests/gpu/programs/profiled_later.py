"""Works for three seconds, then profiles fifty kernels with torch.profiler. Prints how many that saw."""

import time

import torch
from torch.profiler import ProfilerActivity, profile

x = torch.zeros(1 << 10, device="cuda")
end = time.monotonic() + 3
while time.monotonic() < end:
    x.add_(1)
    torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CUDA]) as profiler:
    for _ in range(50):
        x.mul_(2)
    torch.cuda.synchronize()
print(sum(event.device_type.name == "CUDA" and "mul" in event.name.lower() for event in profiler.events()))
