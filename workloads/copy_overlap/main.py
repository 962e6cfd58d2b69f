"""Stream chunks through the device: copied in ahead from pinned memory, worked on, copied out beside it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse
from reference_torch import SEED, need_cuda, wait

FAULTS = {
    "serial": "copies and work take turns in one stream",
    "pageable": "the chunks lie in pageable memory",
    "tiny": "a chunk is copied in and out in many pieces",
    "sync": "wait for the device after every layer",
    "stall": "the host sleeps before a chunk",
    "slow": "a chunk is worked on longer",
}
SIDE, LAYERS = 4096, 10
CHUNKS = 4
PIECES = 32
STALL_S = 0.005


class Pipeline:
    """Two places on the device for chunks and two for results, with what says when they are free."""

    def __init__(self, options: Options) -> None:
        self.options = options
        generator = torch.Generator("cuda").manual_seed(SEED)
        shape = (CHUNKS, SIDE, SIDE)
        chunks = torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16).cpu()
        pin = not options.dose("pageable")
        self.host = [chunk.pin_memory() if pin else chunk for chunk in chunks.unbind()]
        self.out = [torch.empty(SIDE, SIDE, dtype=torch.bfloat16, pin_memory=pin) for _ in range(2)]
        weight = torch.randn((SIDE, SIDE), generator=generator, device="cuda") * SIDE**-0.5
        self.weight = weight.to(torch.bfloat16)
        self.chunk, self.result = (
            [torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="cuda") for _ in range(2)] for _ in range(2)
        )
        self.other = torch.empty_like(self.weight)
        self.work = torch.cuda.current_stream()
        alone = bool(options.dose("serial"))
        self.load, self.save = (self.work if alone else torch.cuda.Stream() for _ in range(2))
        self.loaded, self.done, self.saved = ([torch.cuda.Event() for _ in range(2)] for _ in range(3))
        self.pieces = round(PIECES * options.strength) if options.dose("tiny") else 1

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        for to, part in zip(target.chunk(self.pieces), source.chunk(self.pieces), strict=True):
            to.copy_(part, non_blocking=True)

    def fetch(self, i: int) -> None:
        """Copy chunk `i` in, as soon as the work on the one in its place is over."""
        place = i % 2
        self.load.wait_event(self.done[place])
        with torch.cuda.stream(self.load):
            self.copy(self.chunk[place], self.host[i % CHUNKS])
            self.loaded[place].record(self.load)

    def run(self, i: int) -> None:
        """Work on chunk `i` and copy its result out."""
        place = i % 2
        self.work.wait_event(self.loaded[place])
        self.work.wait_event(self.saved[place])
        x = self.chunk[place]
        for layer in range(2 * round(LAYERS * (1 + self.options.dose("slow")) / 2)):
            y = self.result[place] if layer % 2 else self.other
            torch.mm(x, self.weight, out=y)
            x = y.clamp_(-4, 4)
            wait(self.options.dose("sync"))
        self.done[place].record(self.work)
        self.save.wait_event(self.done[place])
        with torch.cuda.stream(self.save):
            self.copy(self.out[place], x)
            self.saved[place].record(self.save)

    def value(self, i: int) -> float:
        """Wait until the result of chunk `i` is here; its first number."""
        self.saved[i % 2].synchronize()
        return float(self.out[i % 2][0, 0])


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=200)
    need_cuda()
    with torch.inference_mode():
        pipeline = Pipeline(options)
        pipeline.fetch(0)
        loop = Loop(options.iterations)
        for i in loop:
            if options.dose("stall"):
                time.sleep(STALL_S * options.strength)
            if not options.dose("serial"):
                pipeline.fetch(i + 1)
            pipeline.run(i)
            if options.dose("serial"):
                pipeline.fetch(i + 1)
            value = pipeline.value(i - 1 if i and not options.dose("serial") else i)
            if i % 50 == 0:
                print(f"chunk {i} value {value:.4f}")
        torch.cuda.synchronize()
        loop.report()


if __name__ == "__main__":
    main()
