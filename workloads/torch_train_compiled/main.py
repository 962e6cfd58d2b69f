"""Train the transformer of `torch_train` on small batches, each whole step one CUDA graph."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse
from reference_torch import SEED, AdamW, graphed, need_cuda, wait
from torch_train.main import CLASSES, WIDTH, build_model

FAULTS = {
    "eager": "a step's kernels are launched one by one, and not as one graph",
    "sync": "wait for the device before and after a step",
    "tiny": "a step runs as many micro-batches",
    "stall": "the host sleeps before a step",
    "slow": "the blocks' inner layers are wider",
}
BATCH, TOKENS = 8, 128
MICRO_BATCHES = 4
BATCHES = 3
STALL_S = 0.01


class Step:
    """One step of training on the batch that lies in `features` and `classes`; leaves its `loss`."""

    def __init__(self, options: Options) -> None:
        self.model = build_model("cuda", options.dose("slow"))
        self.optimizer = AdamW(self.model.parameters())
        self.features = torch.zeros(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda")
        self.classes = torch.zeros(BATCH, TOKENS, dtype=torch.long, device="cuda")
        self.loss = torch.zeros((), device="cuda")
        self.parts = min(BATCH, round(MICRO_BATCHES * options.strength)) if options.dose("tiny") else 1

    def load(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        for target, source in zip((self.features, self.classes), batch, strict=True):
            target.copy_(source, non_blocking=True)

    def __call__(self) -> None:
        self.loss.zero_()
        parts = zip(self.features.chunk(self.parts), self.classes.chunk(self.parts), strict=True)
        for x, y in parts:
            # The cache of autocast would keep tensors that the graph owns.
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                part = functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten()) / self.parts
            part.backward()
            self.loss += part.detach()
        self.optimizer.step()


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Features and classes in pinned memory."""
    generator = torch.Generator().manual_seed(SEED)
    features = torch.randn((BATCHES, BATCH, TOKENS, WIDTH), generator=generator).to(torch.bfloat16)
    classes = torch.randint(CLASSES, (BATCHES, BATCH, TOKENS), generator=generator)
    pairs = zip(features.unbind(), classes.unbind(), strict=True)
    return [(x.pin_memory(), y.pin_memory()) for x, y in pairs]


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=200)
    need_cuda()
    torch.manual_seed(SEED)
    step = Step(options)
    data = batches()
    step.load(data[0])
    run = step if options.dose("eager") else graphed(step)
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        step.load(data[i % BATCHES])
        wait(options.dose("sync"))
        run()
        wait(options.dose("sync"))
        value = step.loss.item()
        if i % 50 == 0:
            print(f"step {i} loss {value:.4f}")
    loop.report()


if __name__ == "__main__":
    main()
