"""Training programs whose iterations differ from one another, each in its own way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from network import CLASSES, DEVICE, Trainer, workload
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from marks import Marks


def accumulation(marks: Marks) -> None:
    """Four micro-batches, each uploaded, to an optimizer step; the step is the iteration."""
    trainer = Trainer()
    for step in marks.steps(60):
        total = torch.zeros((), device=DEVICE)
        for part in range(4):
            loss = trainer.loss(*trainer.upload(4 * step + part)) / 4
            loss.backward()
            total += loss.detach()
        trainer.update()
        total.item()


def evaluation(marks: Marks) -> None:
    """After every tenth step five batches are evaluated: they belong to that step."""
    trainer = Trainer()
    for step in marks.steps(100):
        loss = trainer.loss(*trainer.upload(step))
        loss.backward()
        trainer.update()
        loss.item()
        if step % 10 == 9:
            with torch.no_grad():
                losses = [trainer.loss(*trainer.upload(batch)) for batch in range(5)]
            torch.stack(losses).mean().item()


def sparse_readback(marks: Marks) -> None:
    """The host reads the loss of every tenth step only, and runs ahead of the device between."""
    trainer = Trainer(width=2048)
    for step in marks.steps(120):
        loss = trainer.loss(*trainer.upload(step))
        loss.backward()
        trainer.update()
        if step % 10 == 9:
            loss.item()


def varying_lengths(marks: Marks) -> None:
    """A transformer whose sequences are of another length in every step, from pageable memory."""
    train = workload("torch_train")
    model = train.build_model(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw = random.Random(1)
    for _ in marks.steps(80):
        shape = (8, 16 * draw.randint(4, 32))
        features, classes = torch.randn(*shape, train.WIDTH), torch.randint(train.CLASSES, shape)
        features, classes = features.to(DEVICE), classes.to(DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(features).flatten(0, 1), classes.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def gan(marks: Marks) -> None:
    """A step of the discriminator and one of the generator take turns: the pair is the iteration."""
    generator, discriminator = Trainer(depth=3), Trainer(depth=2)
    noise = torch.empty(1024, 1024, device=DEVICE)
    real = torch.zeros(1024, dtype=torch.long, device=DEVICE)
    fake = real + 1
    widen = nn.Linear(CLASSES, 1024).to(DEVICE)
    for step in marks.steps(100):
        x, _ = discriminator.upload(step)
        made = widen(generator.model(noise.normal_()))
        loss = discriminator.loss(x, real) + discriminator.loss(made.detach(), fake)
        loss.backward()
        discriminator.update()
        marks("generator")
        fooled = discriminator.loss(widen(generator.model(noise.normal_())), real)
        fooled.backward()
        generator.update()
        discriminator.optimizer.zero_grad()
        if step % 10 == 0:
            fooled.item()


def search(marks: Marks) -> None:
    """Convolutions whose algorithms cuDNN tries out in the first step."""
    torch.backends.cudnn.benchmark = True
    layers = [nn.Conv2d(3, 64, 3, padding=1)]
    for _ in range(6):
        layers += [nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    images, labels = torch.randn(64, 3, 64, 64).pin_memory(), torch.randint(10, (64,)).pin_memory()
    for _ in marks.steps(80):
        x, y = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def compiled(marks: Marks) -> None:
    """torch.compile compiles in the first steps."""
    from torch._inductor import config  # noqa: PLC0415 - it takes seconds that the others need not wait

    config.compile_threads = 1
    trainer = Trainer()
    trainer.model = torch.compile(trainer.model)
    for step in marks.steps(80):
        loss = trainer.loss(*trainer.upload(step))
        loss.backward()
        trainer.update()
        loss.item()
