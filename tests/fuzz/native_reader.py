"""Fuzzes the reader of .aiprof files, and the figures made of what it reads, guided by coverage.

Every input is a file that libFuzzer has changed somewhere; its checksums are then made right again, so that
what is behind them is reached. Only an AiProfError may come out. Usage, with atheris installed:

    python tests/fuzz/native_reader.py -max_total_time=180 [CORPUS]
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path
from types import FunctionType

import atheris

from ai_prof.errors import AiProfError
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace

sys.path.append(str(Path(__file__).parents[1]))
import aiprof_file as af

PREAMBLE, BLOCK = 24, 16
FOLDER = tempfile.TemporaryDirectory(prefix="ai-prof-fuzz-")
FILE = Path(FOLDER.name) / "h-1-0.aiprof"


def signed(data: bytes) -> bytes:
    """The file with the checksums of its header and of every block that is there in whole."""
    out = bytearray(data)
    if len(out) < PREAMBLE:
        return data
    (header,) = struct.unpack_from("<I", out, 12)
    at = PREAMBLE + header
    if at > len(out):
        return data
    struct.pack_into("<I", out, 16, af.crc32c(bytes(out[PREAMBLE:at])))
    while at + BLOCK <= len(out):
        size, count = struct.unpack_from("<II", out, at + 4)
        end = at + BLOCK + size * count
        if end > len(out):
            break
        checked = bytes(out[at : at + BLOCK - 4] + out[at + BLOCK : end])
        struct.pack_into("<I", out, at + BLOCK - 4, af.crc32c(checked))
        at = end + -(size * count) % 8
    return bytes(out)


def read(data: bytes) -> None:
    """Read a file of these bytes and sum it up."""
    FILE.write_bytes(signed(data))
    try:
        summarise(open_trace(FILE))
    except AiProfError:
        return


def instrument(*packages: str) -> None:
    """Have the functions of the loaded modules under `packages` report their branches.

    In place of atheris.instrument_imports, whose modules report none (atheris 3.0.0, Python 3.11).
    """
    for name, module in list(sys.modules.items()):
        if not name.startswith(packages):
            continue
        owners = [module, *(one for one in vars(module).values() if isinstance(one, type))]
        for owner in owners:
            for function in vars(owner).values():
                if isinstance(function, FunctionType) and function.__module__ == name:
                    atheris.instrument_func(function)


def seeds(folder: Path) -> None:
    """Small files that hold every kind of record."""
    folder.mkdir(parents=True, exist_ok=True)
    one = af.Capture(rank=0)
    one.device()
    one.clock(1, 1000, 10**18)
    one.kernel("k", 2000, 3000)
    one.sample(5, 97)
    one.range("step", 1, 900)
    one.meta(errors=["e"], level="kernel")
    one.loss(af.KERNEL, 1, invalid=2, unfinished=3)
    (folder / "every-kind").write_bytes(one.data())
    (folder / "cut").write_bytes(one.data(closed=False)[:-5])
    program = af.Program()
    for _ in range(8):
        program.launch("a", 20_000)
        program.launch("b", 5_000)
        program.synchronize()
    (folder / "iterations").write_bytes(program.data())


def main() -> None:
    """Run libFuzzer with its own arguments; without a corpus, on one of our own."""
    arguments = list(sys.argv)
    if all(argument.startswith("-") for argument in arguments[1:]):
        corpus = Path(FOLDER.name) / "corpus"
        seeds(corpus)
        arguments.append(str(corpus))
    instrument("ai_prof.trace", "ai_prof.timeline")
    atheris.Setup(arguments, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
