"""Programs that generate tokens."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from network import DEVICE, workload
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from marks import Marks

WIDTH, HEADS, LAYERS, VOCABULARY, LONGEST = 1024, 8, 6, 8192, 1024


@torch.inference_mode()
def graph_decode(marks: Marks) -> None:
    """The decoder of workloads/torch_decode as one CUDA graph, replayed for each token."""
    decode = workload("torch_decode")
    model = decode.build_model(DEVICE)
    ids = torch.arange(decode.SEQUENCES, device=DEVICE).view(decode.SEQUENCES, 1)
    position = torch.zeros(1, dtype=torch.long, device=DEVICE)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        model(ids, position)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ids.copy_(model(ids, position))
        position.add_(1).remainder_(decode.CONTEXT)
    for _ in marks.steps(150):
        graph.replay()
        ids[0, 0].item()


class Layer(nn.Module):
    """Attention over a cache that grows, and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("cache", torch.zeros(2, 1, HEADS, LONGEST, WIDTH // HEADS))

    def forward(self, x: torch.Tensor, at: int) -> torch.Tensor:
        tokens = x.shape[1]
        q, k, v = self.qkv(self.norm(x)).view(1, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        self.cache[0, :, :, at : at + tokens] = k
        self.cache[1, :, :, at : at + tokens] = v
        keys, values = self.cache[:, :, :, : at + tokens]
        mixed = functional.scaled_dot_product_attention(q, keys, values, is_causal=tokens > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.inner_norm(x))))


@torch.inference_mode()
def prefill_decode(marks: Marks) -> None:
    """Requests: a prompt is read in one pass, then tokens are made one by one; each pass is an iteration."""
    torch.manual_seed(0)
    draw = random.Random(2)
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    layers = nn.ModuleList(Layer() for _ in range(LAYERS))
    for part in (embed, head, layers):
        part.to(DEVICE, torch.bfloat16)

    def run(ids: torch.Tensor, at: int) -> int:
        x = embed(ids)
        for layer in layers:
            x = layer(x, at)
        return int(head(x[:, -1]).argmax(-1).item())

    for _ in range(20):
        length = 16 * draw.randint(8, 32)
        marks("prefill")
        token = run(torch.randint(VOCABULARY, (1, length)).to(DEVICE), 0)
        for at in range(length, length + draw.randint(8, 24)):
            marks("decode")
            token = run(torch.tensor([[token]]).to(DEVICE), at)
