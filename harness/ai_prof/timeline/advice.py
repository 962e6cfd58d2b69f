"""What to do about each finding, the cheapest first, with its caveats."""

from __future__ import annotations

ACTIONS: dict[str, tuple[str, ...]] = {
    "gap-launch": (
        (
            "Compile the step into fewer launches: torch.compile or CUDA graphs. The first call compiles, "
            "and changing shapes compile again and again: fix the shapes first."
        ),
        "Fuse elementwise operators, and use fused or foreach optimizers.",
        "Raise the batch size, so that each launch carries more work.",
        "Move Python work out of the step: what runs every step delays every launch.",
    ),
    "gap-data": (
        (
            "Start with as many loader workers as half the cores, and raise step by step while the gap "
            "shrinks; too many compete for cores and memory."
        ),
        "Prefetch: pin_memory=True, prefetch_factor, and copies with non_blocking=True on another stream.",
        "Move decoding and augmentation out of the training process, or onto the GPU.",
    ),
    "gap-host": (
        "Capture again with --stacks to see which Python frames run while the device waits.",
        "Move logging, metrics and checkpointing to another thread or to every N iterations.",
    ),
    "gap-wait": (
        (
            "Work was launched in time and the device did not start it: look at the stream and event "
            "dependencies before the longest gaps."
        ),
        "Split the work so that less of it depends on the slowest stream.",
    ),
    "gap-device": (
        "The device's own latency between dependent operations: fewer, larger kernels or CUDA graphs.",
    ),
    "gap-unknown": (
        "Capture at level api (AI_PROF_LEVEL=api), which records the host calls that explain gaps.",
    ),
    "frequent-syncs": (
        "Find what makes the host wait: .item(), .cpu(), print of a tensor, torch.cuda.synchronize().",
        (
            "Keep losses and metrics on the device and read them every N iterations, or copy them with "
            "non_blocking=True into pinned memory and look at them an iteration later."
        ),
        "Each wait also costs the host's lead over the device: the sync shadow shows how much.",
    ),
    "exposed-communication": (
        "Overlap communication with compute: gradient buckets in backward, prefetch of the next shard.",
        "Where it is slow between hosts, a timeline of one host cannot tell: measure the network itself.",
    ),
    "small-kernels": (
        "torch.compile or CUDA graphs; fix the shapes first, since changing ones compile again.",
        "Fuse elementwise chains, and use fused or foreach optimizers.",
        "Raise the batch size.",
    ),
    "unoverlapped-copies": (
        "Copy from pinned memory with non_blocking=True on a stream of its own, one batch ahead.",
        "Keep what is copied every iteration on the device.",
    ),
    "hot-kernel": (
        (
            "The device is fed: further gains are inside kernels. A timeline cannot see instruction "
            "efficiency or bandwidth: profile this kernel with hardware counters (ncu)."
        ),
    ),
    "utilization-below-timeline": (
        (
            "NVML samples about once a second, the work comes in bursts, and the capture saw a burst: "
            "capture for longer, over the idle stretches too."
        ),
    ),
    "utilization-above-timeline": (
        "NVML counts a sample as busy if any kernel ran in it: trust the timeline's busy share.",
    ),
    "no-iterations": (
        (
            "No repeating iteration was found: figures are over first start to last end, warm-up included. "
            "Mark steps with NVTX ranges, or capture for longer."
        ),
    ),
    "short-capture": ("Capture at least 10 s and 5 iterations before acting on small differences.",),
    "lost-records": ("Raise AI_PROF_BUFFER_MB (512, then 1024) and capture again: the figures miss work.",),
    "incomplete-capture": ("Capture again, or read the figures as those of the part that was kept.",),
}
