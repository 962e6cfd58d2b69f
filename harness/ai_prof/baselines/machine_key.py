"""The key of a machine: what must be equal for two measurements to compare."""

from __future__ import annotations

import re

import msgspec

from ai_prof.gate.metrics import Backend


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Stable facts only: a value that jitters would make every baseline a stranger.

    `model` is the GPU's (cuda) or the CPU's name (opencl on PoCL), `count` the number of GPUs or of CPU
    cores. `memory_bytes` is per GPU. `driver` is the driver's version ("570.124.06"; its branch counts) or
    PoCL's ("3.1"), `cuda` the toolkit's or driver's CUDA version ("12.8"; its major counts). None where a
    fact does not exist for the backend. The host's name is no part of the key; it belongs to the session.
    """

    backend: Backend
    model: str
    count: int
    memory_bytes: int | None = None
    mig: str | None = None
    driver: str | None = None
    cuda: str | None = None


def machine_key(facts: MachineFacts) -> str:
    """A folder name such as `cuda-nvidia-h200-x1-140gb-driver570-cuda12`."""
    parts = [facts.backend, facts.model, f"x{facts.count}"]
    if facts.memory_bytes is not None:
        parts.append(f"{round(facts.memory_bytes / 2**30)}gb")
    if facts.mig:
        parts.append(f"mig-{facts.mig}")
    if facts.driver:
        # The branch of NVIDIA's driver is its first number; PoCL's behaviour changes with each minor.
        version = facts.driver.split(".")[0] if facts.backend == "cuda" else facts.driver
        parts.append(f"driver{version}" if facts.backend == "cuda" else f"pocl{version}")
    if facts.cuda:
        parts.append(f"cuda{facts.cuda.split('.')[0]}")
    return "-".join(slug for part in parts if (slug := _slug(part)))


def _slug(text: str) -> str:
    """Lower case, with only what is safe in a path; marks such as (R) and (TM) dropped."""
    text = re.sub(r"\((r|tm|c)\)", "", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.")
