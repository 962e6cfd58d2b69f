"""What to do about a finding of an OpenCL program, where it is not what a CUDA program would do."""

from __future__ import annotations

from ai_prof.timeline.advice import ACTIONS

_FEWER = (
    "Enqueue fewer, larger kernels: merge those that run one after another, and give each more work-items.",
    "Raise the batch size, so that each kernel carries more work.",
    "Move host work out of the loop, or cache it: what runs every iteration delays every enqueue.",
)

OPENCL_ACTIONS: dict[str, tuple[str, ...]] = {
    "gap-launch": _FEWER,
    "setup-calls": (
        ACTIONS["setup-calls"][0],
        "Create buffers, images and kernels once and keep them: none is made or released in the loop.",
        "Build programs before the loop and run a warm-up pass: a first enqueue may still compile.",
    ),
    "gap-data": (
        "Read and prepare the next batch in another thread while the device computes.",
        "Upload it ahead: non-blocking writes (CL_FALSE) on a command queue of their own.",
        "Move decoding and augmentation out of the process that enqueues, or onto the device.",
    ),
    "gap-wait": (
        (
            "Work was enqueued in time and the device did not start it: look at the events that it waits "
            "for, user events too, and on a CPU at other programs that take its cores."
        ),
    ),
    "gap-device": (
        "Enqueue fewer, larger kernels: this is latency of the device between dependent operations.",
    ),
    "frequent-syncs": (
        "Find what makes the host wait: clFinish, clWaitForEvents, blocking reads and maps (CL_TRUE).",
        (
            "Keep results on the device and read them every N iterations, or without blocking (CL_FALSE), "
            "and wait for the read's event an iteration later."
        ),
        ACTIONS["frequent-syncs"][2],
    ),
    "small-kernels": _FEWER,
    "unoverlapped-copies": (
        (
            "Copy without blocking (CL_FALSE) on a command queue of its own, one batch ahead, ordered by "
            "events: work on one in-order queue never overlaps."
        ),
        ACTIONS["unoverlapped-copies"][1],
    ),
    "device-copies": (
        "Avoid what copies within a device: swap buffers or use sub-buffers, and keep one layout.",
        "Between devices, copy on a command queue of its own, one step ahead of what needs it.",
    ),
    "hot-kernel": (
        (
            "The device is fed: what remains is inside kernels, costs most and returns least surely. Only "
            "hardware counters, not a timeline, tell whether this kernel computes or waits for memory."
        ),
        ACTIONS["hot-kernel"][1],
    ),
    # NVTX reaches a capture by CUDA alone.
    "no-iterations": (
        (
            "The figures are over first start to last end, warm-up included: capture for longer, once the "
            "program runs steadily."
        ),
    ),
    "uncertain-iterations": (
        (
            "Read times per iteration with care: the work repeats only roughly, or several iterations may "
            "look like one."
        ),
    ),
}
"""By id; what is not here is said as it is of CUDA."""
