"""Summaries, as `ai-prof summary --json` prints them, of simulated loops."""

from __future__ import annotations

import json

import aiprof_file as af

from ai_prof import cli


def loop(iterations=20, *, work=500_000, kernel=100_000, kernels=3, upload=20_000, calls=True):
    program = af.Program(calls=calls, rank=3)
    for _ in range(iterations):
        program.work(work)
        if upload:
            program.copy(af.HTOD, upload)
        for k in range(kernels):
            program.launch(f"k{k % 7}", kernel)
        program.synchronize()
    return program


def summary(capsys, folder, program, *options):
    path = program.write(folder)
    code = cli.main(["summary", "--input", str(path), "--json", *options])
    assert code == 0
    return json.loads(capsys.readouterr().out)


def ids(found):
    return [finding["id"] for finding in found["findings"]]
