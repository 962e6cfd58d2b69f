"""What each finding is called, and what to do about it: the cheapest first, with its caveats."""

from __future__ import annotations

COMPILE = (
    "Turn on graph mode: torch.compile or CUDA graphs turn many launches into few. The first call compiles, "
    "and changing shapes compile again and again, which can be slower than before: fix the shapes first."
)
LARGER_GRAPHS = (
    "The kernels are launched as graphs already: let a graph hold more of the iteration, or several, and do "
    "what comes between launches (sampling, reading back) on the device or one iteration later."
)
_FUSE = "Fuse chains of elementwise operators by hand; in training, use fused or foreach optimizers."
_BATCH = "Raise the batch size, so that each launch carries more work."
_PYTHON = "Move Python work out of the step, or cache it: what runs every step delays every launch."

CAUSES = {
    "launch": "the host in driver calls",
    "sync": "the host blocked in synchronizes",
    "data": "waiting for data",
    "host": "the host busy outside the driver",
    "wait": "launched work waiting on the device",
    "device": "the device's own latency",
    "unknown": "unknown (its launch is not in the file)",
}
"""What the device's idle time goes to, in words."""

TITLES = {
    "gap-launch": "the host cannot launch work fast enough",
    "setup-calls": "the host is held up by calls that allocate memory or load code",
    "code-loads": "iterations load code",
    "gap-data": "the device waits for input data",
    "gap-host": "the device waits while the host does something else",
    "gap-wait": "launched work does not begin, though nothing that was recorded runs",
    "gap-device": "the device's own latency between operations adds up",
    "gap-unknown": "idle time whose cause was not recorded",
    "frequent-syncs": "the host stops to wait for the device",
    "exposed-communication": "communication that no computing hides",
    "late-rank": "one rank comes late to communication, and the others wait for it",
    "small-kernels": "the work is cut into kernels that are too small",
    "unoverlapped-copies": "copies run while no kernel does",
    "device-copies": "copies within or between devices run while no kernel does",
    "hot-kernel": "the kernel that costs most",
    "utilization-below-timeline": "NVML reports less work than the timeline shows",
    "utilization-above-timeline": "NVML reports more work than the timeline shows",
    "throttled": "the device's clock was held down",
    "no-iterations": "no repeating iteration was found",
    "two-kinds": "iterations are of two lengths",
    "uncertain-iterations": "the iterations found are uncertain",
    "short-capture": "the capture is short",
    "lost-records": "records were lost",
    "incomplete-capture": "the capture is incomplete",
    "capture-notes": "reading the capture left a note",
    "no-device-work": "no device work was recorded",
}
"""By id, to be read as a sentence."""

UNRECORDED = {
    "kineto": ("Profile again with ProfilerActivity.CUDA, over steps that use the GPU.",),
    "nsys": ("Record again with `--trace=cuda`, over a stretch in which the GPU works.",),
}
"""What to do about a trace without device work, by the tool that recorded it; ours is in ACTIONS."""

NOT_REACHED = "See whether the program came to its device work, or ended with an error before it."
"""The first thing to do about a capture of ours in which no call asks for device work."""

LOST = {
    "buffer": (
        "Raise AI_PROF_BUFFER_MB (512, then 1024), and AI_PROF_MAX_FILE_MB where it is set, and capture "
        "again: the figures miss work."
    ),
    "disk": "The disk refused what was written: free some space or write elsewhere, and capture again.",
    "time": (
        "The driver stamped no valid times on what was left out, and no larger buffer helps: work in flight "
        "as the capture began, or more nodes of CUDA graphs than it can time (then AI_PROF_GRAPHS=graph)."
    ),
    "file": "The times of what was left out cannot be: record again with the tool that wrote the file.",
}
"""What to do about lost records, by what lost them."""

LAUNCHES_LOST = (
    "The launches of what ran after these gaps are missing, with what could not be read: capture again."
)
LAUNCHES_UNSEEN = (
    "Host calls were recorded, but not the launches of what ran after these gaps: see whether they came "
    "before the capture began."
)
"""In place of the advice to record host calls, where some were or the file is not whole."""

SAMPLE_STACKS = (
    "Sample the Python stacks (`ai-prof run` or `attach` with `--stacks`) to see what runs meanwhile."
)

HELD_ALONE = (
    "Work was launched in time, and nothing that was recorded ran on another stream: look at what the stream "
    "holds before it, as a host function (cudaLaunchHostFunc), a wait for memory or for another process."
)
"""What to do about waits where there is but one stream."""

PIN = (
    "Pin the host's memory (pin_memory=True, cudaMallocHost): for {share:.0%} of their time these copies are "
    "from or to pageable memory, where each holds the host up and none runs beside kernels."
)
"""What to do first about copies of which most are so."""

ACTIONS: dict[str, tuple[str, ...]] = {
    "gap-launch": (COMPILE, _FUSE, _BATCH, _PYTHON),
    "setup-calls": (
        "If this is the program's start, capture later, once it runs steadily: the work is not at fault.",
        "Allocate once and keep it: pinned buffers, a caching allocator, no empty_cache() in the loop.",
        "Load code before the loop: a warm-up pass, or CUDA_MODULE_LOADING=EAGER.",
    ),
    "code-loads": (
        "Let few shapes occur: pad or bucket lengths, so that a plan or a compiled kernel is used again.",
        "Meet every shape once before the loop, or choose operators that plan nothing for each shape.",
    ),
    "gap-data": (
        (
            "Capture once more with twice the loader workers, or with half as many as there are cores where "
            "there is none (num_workers=0): if the gap shrinks, loading it is. Raise them step by step; too "
            "many compete for cores and memory and get slower."
        ),
        "Prefetch: pin_memory=True, prefetch_factor, and copies with non_blocking=True on another stream.",
        "Move decoding and augmentation out of the training process, or onto the GPU.",
    ),
    "gap-host": (
        SAMPLE_STACKS,
        "Move logging, metrics and checkpointing to another thread or to every N iterations.",
        _PYTHON,
    ),
    "gap-wait": (
        (
            "Work was launched in time and the device did not start it: look at the stream and event "
            "dependencies before the longest gaps."
        ),
        "Split the work so that less of it depends on the slowest stream.",
    ),
    "gap-device": (
        "Fewer, larger kernels or CUDA graphs: this is latency of the hardware between dependent operations.",
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
        (
            "A communication kernel also waits for the slowest rank: compare the ranks before blaming the "
            "network, which the timeline of one host cannot see."
        ),
    ),
    "late-rank": (
        (
            "Look at that rank alone: its gaps and their causes, its clocks and throttling, and what else "
            "its host does."
        ),
        "Give the ranks equal work: bucket or pad by length, shard evenly, drop_last=True.",
        "Move logging, checkpoints and evaluation off the one rank that does them.",
    ),
    "small-kernels": (COMPILE, _FUSE, _BATCH, _PYTHON),
    "unoverlapped-copies": (
        (
            "Copy from pinned memory with non_blocking=True on a stream of its own, one batch ahead: work on "
            "one stream never overlaps."
        ),
        "Keep what is copied every iteration on the device.",
    ),
    "device-copies": (
        "Avoid what copies within a device: clone, contiguous, cat, padding, changing layouts.",
        "Between devices, copy on a stream of its own, one step ahead of what needs it.",
    ),
    "hot-kernel": (
        (
            "The device is fed: what remains is inside kernels, costs most and returns least surely. Only "
            "hardware counters (ncu), not a timeline, tell whether this kernel computes or waits for memory."
        ),
        "If it waits for memory, move fewer bytes: fusion, lower precision, a better layout.",
    ),
    "utilization-below-timeline": (
        (
            "NVML samples over up to a second, and work that comes in bursts falls between: capture at least "
            "10 s, over the idle stretches too, and compare the same stretch."
        ),
        (
            "Where both cover the same stretch, the device may be busy with little: copies, or kernels that "
            "wait for memory or for each other. Hardware counters tell (ncu)."
        ),
    ),
    "utilization-above-timeline": (
        "NVML counts a sample as busy if any kernel ran in it: trust the timeline's busy share.",
    ),
    "throttled": (
        "Compare times at like clocks alone: a power cap is normal under heavy matrix work, heat is not.",
    ),
    "no-iterations": (
        (
            "The figures are over first start to last end, warm-up included: mark steps with NVTX ranges, or "
            "capture for longer, once the program runs steadily."
        ),
    ),
    "two-kinds": (
        "Figures of an iteration are of both together: look at either kind by itself in an export.",
    ),
    "uncertain-iterations": (
        (
            "Read times per iteration with care: the work repeats only roughly, or several iterations may "
            "look like one. NVTX ranges around steps settle it."
        ),
    ),
    "short-capture": ("Capture at least 10 s and 5 iterations before acting on small differences.",),
    "incomplete-capture": ("Capture again, or read the figures as those of the part that was kept.",),
    "no-device-work": (
        "Start the capture with the program: a context that was there before is not always seen.",
        "Check that no other profiler (nsys, ncu, torch.profiler) holds the device.",
        "Check that this user may use the device.",
    ),
}
