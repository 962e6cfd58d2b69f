"""Train a small transformer with PyTorch: bf16 autocast, AdamW, batches prefetched from pinned memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, busy, parse
from reference_torch import AdamW, need_cuda

FAULTS = {
    "sync": "wait for the device after every block of the forward pass",
    "tiny": "a step runs as many micro-batches",
    "stall": "the host sleeps before a step",
    "delay": "the host is busy for 100 us before a step",
    "delay_mid": "the host is busy for 100 us before the block in the middle of the forward pass",
    "slow": "the blocks' inner layers are wider",
    "serial": "a batch is copied in line, from pageable memory, and not beside the step before",
}
BATCH, TOKENS, WIDTH, HEADS, BLOCKS, CLASSES = 32, 512, 1024, 16, 6, 1024
MICRO_BATCHES = 4
BATCHES = 3
STALL_S = 0.04
DELAY_S = 100e-6


class Block(nn.Module):
    """Pre-norm attention and a feed-forward layer `inner` wide."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm_attention, self.norm_inner = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_inner(x))))


def build_model(device: str, slow: float = 0.0) -> nn.Sequential:
    """Blocks from (batch, TOKENS, WIDTH) features to (batch, TOKENS, CLASSES) logits."""
    inner = 4 * WIDTH + 64 * round(slow * 8 * WIDTH / 64)
    blocks = [Block(inner) for _ in range(BLOCKS)]
    return nn.Sequential(*blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)).to(device)


class Feed:
    """Batches of features and classes in host memory, and two places on the device to copy them to."""

    def __init__(self, options: Options) -> None:
        self.serial = bool(options.dose("serial"))
        shape = (BATCHES, BATCH, TOKENS)
        generator = torch.Generator("cuda").manual_seed(20240607)
        features = torch.randn((*shape, WIDTH), generator=generator, device="cuda").to(torch.bfloat16).cpu()
        classes = torch.randint(CLASSES, shape, generator=generator, device="cuda").cpu()
        pairs = zip(features.unbind(), classes.unbind(), strict=True)
        self.host = [pair if self.serial else tuple(t.pin_memory() for t in pair) for pair in pairs]
        self.device = [tuple(t.to("cuda") for t in self.host[0]) for _ in range(2)]
        self.stream = torch.cuda.Stream()

    def prefetch(self, step: int) -> None:
        """Start to copy the batch of `step` on a stream of its own; the step that used its place is over."""
        if self.serial:
            return
        with torch.cuda.stream(self.stream):
            self.copy(step, non_blocking=True)

    def batch(self, step: int) -> tuple[torch.Tensor, ...]:
        """Return the batch of `step` on the device, prefetched unless copies are serial."""
        if self.serial:
            self.copy(step, non_blocking=False)
        torch.cuda.current_stream().wait_stream(self.stream)
        return self.device[step % 2]

    def copy(self, step: int, *, non_blocking: bool) -> None:
        for target, source in zip(self.device[step % 2], self.host[step % BATCHES], strict=True):
            target.copy_(source, non_blocking=non_blocking)


def hold_up(model: nn.Sequential, options: Options) -> None:
    """Switch on the faults that lie within the forward pass."""
    if options.dose("sync"):
        for block in list(model)[:BLOCKS]:
            for _ in range(max(1, round(options.strength))):
                block.register_forward_hook(lambda *_: torch.cuda.synchronize())
    if late := DELAY_S * options.dose("delay_mid"):
        model[BLOCKS // 2].register_forward_pre_hook(lambda *_: busy(late))


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=60)
    need_cuda()
    torch.manual_seed(20240607)
    model = build_model("cuda", options.dose("slow"))
    optimizer = AdamW(model.parameters())
    feed = Feed(options)
    feed.prefetch(0)
    hold_up(model, options)
    parts = min(BATCH, round(MICRO_BATCHES * options.strength)) if options.dose("tiny") else 1
    loop = Loop(options.iterations)
    for step in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        if options.dose("delay"):
            busy(DELAY_S * options.strength)
        features, classes = feed.batch(step)
        loss = torch.zeros((), device="cuda")
        for x, y in zip(features.chunk(parts), classes.chunk(parts), strict=True):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                part = functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / parts
            part.backward()
            loss += part.detach()
        feed.prefetch(step + 1)  # while the device still runs backward
        optimizer.step()
        value = loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {value:.4f}")
    loop.report()


if __name__ == "__main__":
    main()
