"""Steps of one kind until told to stop, each waited for; knows nothing of who watches.

Usage: steps.py KIND FOLDER [MOST]. FOLDER/ready appears after the first steps, FOLDER/stop ends them, and
FOLDER/profile makes torch.profiler watch ten of them. At the end FOLDER/steps.json holds the time of each
step's end (CLOCK_MONOTONIC, ns) and its result.
"""

# ruff: noqa: PLC0415 - each kind imports what it needs

import json
import sys
import time
from array import array
from pathlib import Path


def train():
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True)
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024), torch.nn.LayerNorm(1024)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    data = torch.randn(8192, 1024).pin_memory()

    def step():
        batch = data.cuda(non_blocking=True)
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def decode():
    import torch

    weights = [torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) / 32 for _ in range(48)]
    state = torch.randn(1, 1024, device="cuda", dtype=torch.bfloat16)

    def layers():
        x = state
        for weight in weights:
            x = torch.nn.functional.silu(x @ weight)
        state.copy_(x)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        layers()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers()

    def step():
        graph.replay()
        return state[0, 0].item()

    return step


def with_jax():
    import jax

    x = jax.numpy.ones((2048, 2048))

    @jax.jit
    def layers(x):
        for _ in range(4):
            x = jax.numpy.tanh(x @ x / 2048)
        return x

    def step():
        layers(x).block_until_ready()
        return 0.0

    return step


def profile(take):
    """What torch.profiler sees in ten steps: kernels, launches, and how many of those it tells apart."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    with watch(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(10):
            take()
    devices = [str(event.device_type) for event in seen.events()]
    launches = [
        event.correlation_id()
        for event in seen.profiler.kineto_results.events()
        if event.name().startswith(("cudaLaunch", "cuLaunch", "cudaGraphLaunch"))
    ]
    return {
        "kernels": sum(device.endswith("CUDA") for device in devices),
        "launches": len(launches),
        "told_apart": len(set(launches)),
    }


def main():
    kind, folder = sys.argv[1], Path(sys.argv[2])
    most = int(sys.argv[3]) if len(sys.argv) > 3 else sys.maxsize
    step = {"train": train, "decode": decode, "jax": with_jax}[kind]()
    times, results = array("q"), array("d")  # small: its memory is looked at

    def take():
        results.append(step())
        times.append(time.monotonic_ns())

    while len(times) < most and not (folder / "stop").exists():
        take()
        if len(times) == 20:
            (folder / "ready").touch()
        if len(times) % 50 == 0 and (folder / "profile").exists():
            (folder / "profiled.tmp").write_text(json.dumps(profile(take)))
            (folder / "profiled.tmp").rename(folder / "profiled.json")
            (folder / "profile").unlink()
    (folder / "steps.json").write_text(json.dumps({"times": times.tolist(), "results": results.tolist()}))


main()
