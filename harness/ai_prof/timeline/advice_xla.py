"""What to do about a finding of a program that XLA compiles, where it is not what one of PyTorch would do."""

from __future__ import annotations

from ai_prof.timeline.advice import ACTIONS

XLA_COMPILE = (
    "Compile more as one: jax.jit around the whole step, jax.lax.scan around several. The first call "
    "compiles, and every new shape compiles again, which can be slower than before: fix the shapes first."
)
_FUSE = "Call no operation by itself in the loop: XLA fuses what is traced in one jax.jit function."

XLA_ACTIONS: dict[str, tuple[str, ...]] = {
    "gap-launch": (XLA_COMPILE, _FUSE, *ACTIONS["gap-launch"][2:]),
    "setup-calls": (
        ACTIONS["setup-calls"][0],
        "Keep XLA's memory pool (XLA_PYTHON_CLIENT_PREALLOCATE), and donate what a step replaces.",
        "Compile before the loop: one step to warm up, or jax.jit(...).lower(...).compile().",
    ),
    "gap-data": (
        "Prefetch: jax.device_put returns at once, so put the next batch before reading this step's result.",
        (
            "Load batches in workers of their own (grain, tf.data), and capture again with twice as many: "
            "if the gap shrinks, loading it is. Too many compete for cores and memory and get slower."
        ),
        ACTIONS["gap-data"][2],
    ),
    "gap-device": ("Fewer, larger kernels: this is latency of the hardware between dependent operations.",),
    "frequent-syncs": (
        "Find what makes the host wait: float(), np.asarray() or print of an array, block_until_ready().",
        (
            "Keep losses and metrics on the device and read them every N iterations, or have them copied by "
            "copy_to_host_async() and look at them an iteration later."
        ),
        ACTIONS["frequent-syncs"][2],
    ),
    "exposed-communication": (
        (
            "Let XLA overlap communication with compute: XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler"
            "=true, where it is not the default."
        ),
        ACTIONS["exposed-communication"][1],
    ),
    "small-kernels": (XLA_COMPILE, _FUSE, *ACTIONS["small-kernels"][2:]),
    "unoverlapped-copies": (
        "Copy one batch ahead: jax.device_put of the next batch before a result of this step is read.",
        ACTIONS["unoverlapped-copies"][1],
    ),
    "device-copies": (
        "Donate what a step replaces (donate_argnums), so that it is updated in place, not copied.",
        "Avoid padding, concatenating and changing layouts.",
    ),
}
"""By id; what is not here is said as it is of PyTorch."""
