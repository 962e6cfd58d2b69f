"""Works for three seconds, then profiles fifty kernels with torch.profiler. Prints what that saw, by name."""

import json
import time
from collections import Counter

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
print(json.dumps(Counter(event.name for event in profiler.events() if event.device_type.name == "CUDA")))
