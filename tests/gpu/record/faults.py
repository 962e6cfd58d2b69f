"""One training program, whole and with each of the faults whose gaps a tool should explain."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import TYPE_CHECKING

import torch
from network import DEVICE, Trainer
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Callable

    from marks import Marks

STALL_S = 0.008
WAIT_US = 8000
TINY = 400
ITERATIONS = 60


def training(fault: str = "") -> Callable[[Marks], None]:
    """A program that trains, bound by the device, with one fault or none."""

    def run(marks: Marks) -> None:
        trainer = Trainer(width=2048, batch=4096)
        small = torch.zeros(16, device=DEVICE)
        side = torch.cuda.Stream()
        if fault == "sync":
            for block in list(trainer.model)[:-1]:
                block.register_forward_hook(lambda *_: torch.cuda.synchronize())
        for step in marks.steps(ITERATIONS):
            if fault == "stall_start":
                time.sleep(STALL_S)
            x, y = trainer.upload(step)
            for _ in range(TINY if fault == "tiny" else 0):
                small.add_(1)
            loss = trainer.loss(x, y)
            if fault == "stall_middle":
                time.sleep(STALL_S)
            elif fault == "log":
                write_log(step, loss.item())
            elif fault == "wait":
                hold(side)
            loss.backward()
            trainer.update()
            loss.item()

    return run


def write_log(step: int, loss: float) -> None:
    """A logger that formats far too much, on the thread that feeds the device."""
    end = time.monotonic() + STALL_S
    while time.monotonic() < end:
        text = json.dumps({"step": step, "loss": loss, "history": list(range(500))})
    sys.stdout.write(text[:40] + "\n")


def hold(side: torch.cuda.Stream) -> None:
    """Make the current stream wait for an event behind a pause on another stream."""
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    # usleep() takes its argument where a host function takes its user data.
    pause = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    stream = ctypes.c_void_p(side.cuda_stream)
    code = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, pause, ctypes.c_void_p(WAIT_US))
    assert code == 0, code
    main.wait_stream(side)


class Slow(Dataset):
    """Batches that take a processor some ms each to make."""

    def __init__(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return ITERATIONS

    def __getitem__(self, _: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = time.monotonic() + STALL_S
        while time.monotonic() < end:
            pass
        return self.batch


def loading(workers: int) -> Callable[[Marks], None]:
    """A program that trains on what a DataLoader gives it, with so many workers."""

    def run(marks: Marks) -> None:
        torch.set_num_threads(1)
        trainer = Trainer(width=2048, batch=1024, depth=8)
        x, y = trainer.host[0]
        data = Slow((x.clone(), y.clone()))
        loader = iter(DataLoader(data, batch_size=None, num_workers=workers, pin_memory=True))
        time.sleep(0.5 if workers else 0)  # the workers have started
        for _ in marks.steps(ITERATIONS):
            x, y = next(loader)
            loss = trainer.loss(x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True))
            loss.backward()
            trainer.update()
            loss.item()

    return run
