"""Train the transformer of `torch_train` on every GPU of the machine: torchrun, NCCL, one process a GPU."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse

FAULTS = {
    "straggler": "the last rank's host sleeps before a step",
    "serial": "gradients are summed after the backward pass, and not beside it",
    "tiny": "gradients are summed in many small buckets",
    "sync": "wait for the device after the backward pass",
    "stall": "every rank's host sleeps before a step",
    "slow": "the blocks' inner layers are wider",
}
BATCH, TOKENS = 16, 512
BUCKET_MB = 25
STALL_S = 0.03


def devices() -> int:
    """How many GPUs there are to use, asked without starting CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip()])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def launch() -> None:
    """Become torchrun, which starts this program once a GPU."""
    count = devices()
    if count < 2:
        sys.exit(f"too few CUDA devices: this workload needs 2 or more NVIDIA GPUs, there are {count}")
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    os.execv(sys.executable, [sys.executable, *torchrun, *sys.argv])  # noqa: S606 - as torchrun itself does


def train(options: Options) -> Loop:
    """Train as one of the ranks."""
    import torch  # noqa: PLC0415 - not in the process that only starts the ranks
    from reference_torch import SEED, AdamW, wait  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415
    from torch.nn import functional  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415
    from torch_train.main import CLASSES, WIDTH, build_model  # noqa: PLC0415

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    distributed.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(SEED)
    model = build_model("cuda", options.dose("slow"))
    buckets = max(0.1, BUCKET_MB / (50 * options.strength)) if options.dose("tiny") else BUCKET_MB
    parallel = DistributedDataParallel(model, device_ids=[local], bucket_cap_mb=buckets)
    optimizer = AdamW(model.parameters())
    generator = torch.Generator("cuda").manual_seed(SEED + rank)
    shape = (BATCH, TOKENS)
    features = torch.randn((*shape, WIDTH), generator=generator, device="cuda")
    classes = torch.randint(CLASSES, shape, generator=generator, device="cuda")
    serial = bool(options.dose("serial"))
    pause = options.dose("stall") + (options.dose("straggler") if rank == ranks - 1 else 0.0)
    loop = Loop(options.iterations)
    for step in loop:
        if pause:
            time.sleep(STALL_S * pause)
        with parallel.no_sync() if serial else nullcontext():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = functional.cross_entropy(parallel(features).flatten(0, 1), classes.flatten())
            loss.backward()
        if serial:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad, distributed.ReduceOp.AVG)
        wait(options.dose("sync"))
        optimizer.step()
        value = loss.item()
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {value:.4f}")
    distributed.destroy_process_group()
    return loop


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=40)
    if "LOCAL_RANK" not in os.environ:
        launch()
    loop = train(options)
    if os.environ["RANK"] == "0":
        loop.report()


if __name__ == "__main__":
    main()
