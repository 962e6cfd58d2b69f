"""Feeds a GPU from forked loader workers."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.zeros(1, device="cuda")  # CUDA is up before the workers are forked
    data = DataLoader(TensorDataset(torch.randn(512, 256)), batch_size=32, num_workers=2, pin_memory=True)
    total = torch.zeros((), device="cuda")
    for (batch,) in data:
        total += batch.cuda(non_blocking=True).square().sum()
    print(total.item())


if __name__ == "__main__":
    main()
