"""Train a residual network of wide layers with JAX: a step is one compiled function."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax import numpy as jnp

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse

FAULTS = {
    "sync": "wait for the parameters between gradients and update, which are then compiled apart",
    "tiny": "a step runs as many micro-batches, each a call of a compiled function",
    "stall": "the host sleeps before a step",
    "slow": "the inner layers are wider",
}
SEED = 20240607
ROWS, WIDTH, LAYERS, CLASSES = 4096, 1024, 4, 256
RATE = 1e-2
MICRO_BATCHES = 4
BATCHES = 3
STALL_S = 0.01

Parameters = list[tuple[jax.Array, ...]]


def loss_of(parameters: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy of the classes `y` after the layers."""
    *layers, (head,) = parameters
    for up, down in layers:
        x += jax.nn.gelu(x @ up) @ down
    logits = (x @ head).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def update(parameters: Parameters, gradients: Parameters) -> Parameters:
    """Follow the gradients."""
    return jax.tree.map(lambda p, g: (p - RATE * g).astype(p.dtype), parameters, gradients)


def step(parameters: Parameters, x: jax.Array, y: jax.Array) -> tuple[jax.Array, Parameters]:
    """Return the loss and the next parameters."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
    return loss, update(parameters, gradients)


class Trainer:
    """The parameters, and the compiled functions that a step calls."""

    def __init__(self, options: Options) -> None:
        self.options = options
        rng = np.random.default_rng(SEED)
        inner = 4 * WIDTH + 64 * round(options.dose("slow") * 8 * WIDTH / 64)
        shapes = [((WIDTH, inner), (inner, WIDTH))] * LAYERS + [((WIDTH, CLASSES),)]
        self.parameters = [
            tuple(jnp.asarray(rng.normal(0, s[0] ** -0.5, s), jnp.bfloat16) for s in layer)
            for layer in shapes
        ]
        self.whole = jax.jit(step, donate_argnums=0)
        self.gradients = jax.jit(jax.value_and_grad(loss_of))
        self.update = jax.jit(update, donate_argnums=0)
        self.sum = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
        self.parts = round(MICRO_BATCHES * options.strength) if options.dose("tiny") else 1

    def train(self, x: jax.Array, y: jax.Array) -> float:
        """One step; its loss."""
        if not self.options.fault or self.options.fault in {"stall", "slow"}:
            loss, self.parameters = self.whole(self.parameters, x, y)
            return float(loss)
        total = None
        rows = ROWS // self.parts
        for part in range(self.parts):
            piece = slice(part * rows, (part + 1) * rows)
            found = self.gradients(self.parameters, x[piece], y[piece])
            total = found if total is None else self.sum(total, found)
        loss, gradients = total
        for _ in range(round(self.options.dose("sync"))):
            jax.block_until_ready(gradients)
        self.parameters = self.update(self.parameters, gradients)
        return float(loss) / self.parts


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=60)
    try:
        jax.devices("cuda")
    except RuntimeError:
        sys.exit("no CUDA device: this workload needs an NVIDIA GPU and a JAX built for it")
    rng = np.random.default_rng(SEED)
    data = [
        (rng.standard_normal((ROWS, WIDTH), np.float32).astype(jnp.bfloat16), rng.integers(0, CLASSES, ROWS))
        for _ in range(BATCHES)
    ]
    trainer = Trainer(options)
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        x, y = (jax.device_put(part) for part in data[i % BATCHES])
        value = trainer.train(x, y)
        if i % 20 == 0:
            print(f"step {i} loss {value:.4f}")
    loop.report()


if __name__ == "__main__":
    main()
