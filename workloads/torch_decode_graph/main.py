"""Decode as `torch_decode` does, each token one CUDA graph."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, parse
from reference_torch import SEED, graphed, need_cuda, wait
from torch_decode.main import CONTEXT, SEQUENCES, build_model

FAULTS = {
    "eager": "a token's kernels are launched one by one, and not as one graph",
    "sync": "wait for the device once more after a token",
    "tiny": "attention runs head by head",
    "stall": "the host sleeps before a token",
    "slow": "the blocks' inner layers are wider",
}
STALL_S = 0.005


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=400)
    need_cuda()
    torch.manual_seed(SEED)
    with torch.inference_mode():
        model = build_model("cuda", options.dose("slow"), by_head=bool(options.dose("tiny")))
        ids = torch.arange(SEQUENCES, device="cuda").view(SEQUENCES, 1)
        position = torch.zeros(1, dtype=torch.long, device="cuda")

        def step() -> None:
            ids.copy_(model(ids, position))
            position.add_(1).remainder_(CONTEXT)

        run = step if options.dose("eager") else graphed(step)
        loop = Loop(options.iterations)
        for token in loop:
            if options.dose("stall"):
                time.sleep(STALL_S * options.strength)
            run()
            wait(options.dose("sync"))
            first = ids[0, 0].item()
            if token % 200 == 0:
                print(f"token {token} is {first}")
        loop.report()


if __name__ == "__main__":
    main()
