"""Decode token by token with PyTorch: a random transformer, a static KV cache, one readback a token."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, busy, parse
from reference_torch import need_cuda

FAULTS = {
    "sync": "wait for the device after every block",
    "tiny": "attention runs head by head",
    "stall": "the host sleeps before a token",
    "delay": "the host is busy for 100 us before a token",
    "delay_mid": "the host is busy for 100 us before the block in the middle of the model",
    "slow": "the blocks' inner layers are wider",
}
SEQUENCES, CONTEXT, WIDTH, HEADS, BLOCKS, VOCABULARY = 8, 1024, 1024, 8, 8, 8192
STALL_S = 0.015
DELAY_S = 100e-6


class Block(nn.Module):
    """Pre-norm attention over a cache of CONTEXT tokens and a feed-forward layer `inner` wide."""

    def __init__(self, inner: int, *, by_head: bool) -> None:
        super().__init__()
        self.by_head = by_head
        self.norm_attention, self.norm_inner = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)
        cache = torch.zeros(2, SEQUENCES, HEADS, CONTEXT, WIDTH // HEADS)
        self.register_buffer("cache", cache, persistent=False)

    def attend(self, q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attention of queries (SEQUENCES, HEADS, 1, size) to the cache, all heads at once."""
        keys, values = self.cache
        scores = q @ keys.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        return (scores + mask).softmax(-1) @ values

    def attend_by_head(self, q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """As `attend`, each head by itself."""
        keys, values = self.cache
        mixed = []
        for head in range(HEADS):
            scores = q[:, head] @ keys[:, head].transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
            mixed.append((scores + mask).softmax(-1) @ values[:, head])
        return torch.stack(mixed, 1)

    def forward(self, x: torch.Tensor, position: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm_attention(x)).view(SEQUENCES, 1, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        self.cache.index_copy_(3, position, torch.stack((k, v)))
        mixed = self.attend_by_head(q, mask) if self.by_head else self.attend(q, mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(SEQUENCES, 1, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_inner(x))))


class Decoder(nn.Module):
    """Token ids (SEQUENCES, 1) to the next ids, through blocks that keep their own caches."""

    def __init__(self, slow: float, *, by_head: bool) -> None:
        super().__init__()
        inner = 4 * WIDTH + 64 * round(slow * 48 * WIDTH / 64)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(inner, by_head=by_head) for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", torch.full((CONTEXT,), float("-inf")), persistent=False)

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.mask.index_fill_(0, position, 0.0)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, position, self.mask)
        return self.head(self.norm(x)).argmax(-1)


def build_model(device: str, slow: float = 0.0, *, by_head: bool = False) -> Decoder:
    """Build a decoder with weights and caches in bf16."""
    with torch.device(device):
        return Decoder(slow, by_head=by_head).to(torch.bfloat16).eval()


@torch.inference_mode()
def main() -> None:
    options = parse(__doc__, FAULTS, iterations=200)
    need_cuda()
    torch.manual_seed(20240607)
    model = build_model("cuda", options.dose("slow"), by_head=bool(options.dose("tiny")))
    if options.dose("sync"):
        for block in model.blocks:
            for _ in range(max(1, round(options.strength))):
                block.register_forward_hook(lambda *_: torch.cuda.synchronize())
    if late := DELAY_S * options.dose("delay_mid"):
        model.blocks[BLOCKS // 2].register_forward_pre_hook(lambda *_: busy(late))
    ids = torch.arange(SEQUENCES, device="cuda").view(SEQUENCES, 1)
    position = torch.zeros(1, dtype=torch.long, device="cuda")
    loop = Loop(options.iterations)
    for token in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        if options.dose("delay"):
            busy(DELAY_S * options.strength)
        ids = model(ids, position)
        position.add_(1).remainder_(CONTEXT)
        first = ids[0, 0].item()
        if token % 200 == 0:
            print(f"token {token} is {first}")
    loop.report()


if __name__ == "__main__":
    main()
