"""Train a small residual network on images that loader processes read, decode and augment."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from png import decode, encode
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse
from reference_torch import SEED, AdamW, need_cuda, wait

FAULTS = {
    "starve": "one process loads the images; at strength 2 none but the training one itself",
    "serial": "a batch is copied from pageable memory, and the host waits for it",
    "sync": "wait for the device after every stage of the forward pass",
    "tiny": "a step runs as many micro-batches",
    "stall": "the host sleeps before a step",
    "slow": "the network is wider",
}
FILES, SIDE, CROP = 128, 160, 144
BATCH, CLASSES = 64, 100
WIDTHS = (128, 256, 512)
MICRO_BATCHES = 4
WORKERS = 8
STALL_S = 0.02


def make_images(folder: Path) -> list[Path]:
    """Write FILES images: coarse colours under fine noise, as hard to decode as a photograph."""
    rng = np.random.default_rng(SEED)
    paths = []
    for i in range(FILES):
        coarse = rng.integers(0, 224, (SIDE // 16, SIDE // 16, 3), np.uint8).repeat(16, 0).repeat(16, 1)
        path = folder / f"{i}.png"
        path.write_bytes(encode(coarse + rng.integers(0, 32, coarse.shape, np.uint8)))
        paths.append(path)
    return paths


class Images(Dataset):
    """`count` random crops of the files in turn, each drawn from its own index."""

    def __init__(self, files: list[Path], count: int) -> None:
        self.files, self.count = files, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng((SEED, index))
        pixels = decode(self.files[index % len(self.files)].read_bytes())
        top, left = rng.integers(0, SIDE - CROP + 1, 2)
        pixels = pixels[top : top + CROP, left : left + CROP]
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        brighter = np.clip(np.arange(256) * rng.uniform(0.7, 1.3), 0, 255).astype(np.uint8)
        return torch.from_numpy(np.ascontiguousarray(brighter[pixels].transpose(2, 0, 1))), index % CLASSES


class Block(nn.Module):
    """Two convolutions beside a shortcut; halves the image where `stride` is 2."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm_first, self.norm_second = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm_first(self.first(x)))
        return functional.relu(self.norm_second(self.second(y)) + self.shortcut(x))


class Classifier(nn.Module):
    """Images (batch, 3, CROP, CROP) in 0..255 to logits (batch, CLASSES)."""

    def __init__(self, slow: float = 0.0) -> None:
        super().__init__()
        widths = [64, *(64 * round(width * (1 + slow) / 64) for width in WIDTHS)]
        stem = nn.Conv2d(3, widths[0], 5, 2, 2, bias=False)
        pairs = itertools.pairwise(widths)
        self.stages = nn.ModuleList(nn.Sequential(Block(a, b, 2), Block(b, b, 1)) for a, b in pairs)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(widths[0]), nn.ReLU())
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x / 127.5 - 1)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


def load(files: list[Path], options: Options) -> DataLoader:
    """Return the batches of all steps."""
    workers = options.workers
    if options.dose("starve"):
        workers = 1 if options.strength < 2 else 0
    more = {"prefetch_factor": 4, "multiprocessing_context": "fork"} if workers else {}
    return DataLoader(
        Images(files, BATCH * options.iterations),
        BATCH,
        num_workers=workers,
        pin_memory=not options.dose("serial"),
        **more,
    )


def train(options: Options, files: list[Path]) -> Loop:
    feed = iter(load(files, options))  # forks, and so before this process has a CUDA context
    torch.manual_seed(SEED)
    model = Classifier(options.dose("slow")).to("cuda", memory_format=torch.channels_last)
    optimizer = AdamW(model.parameters())
    if options.dose("sync"):
        for stage in model.stages:
            stage.register_forward_hook(lambda *_: wait(max(1.0, options.strength)))
    parts = min(BATCH, round(MICRO_BATCHES * options.strength)) if options.dose("tiny") else 1
    loop = Loop(options.iterations)
    for step in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        images, classes = (t.to("cuda", non_blocking=not options.dose("serial")) for t in next(feed))
        loss = torch.zeros((), device="cuda")
        for x, y in zip(images.chunk(parts), classes.chunk(parts), strict=True):
            x = x.float().contiguous(memory_format=torch.channels_last)  # noqa: PLW2901
            with torch.autocast("cuda", dtype=torch.bfloat16):
                part = functional.cross_entropy(model(x), y) / parts
            part.backward()
            loss += part.detach()
        optimizer.step()
        value = loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {value:.4f}")
    return loop


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=60, workers=WORKERS)
    need_cuda()
    with tempfile.TemporaryDirectory(prefix="images-") as folder:
        train(options, make_images(Path(folder))).report()


if __name__ == "__main__":
    main()
