from __future__ import annotations

import random
import tracemalloc

import aiprof_file as af
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.evidence import evidence
from ai_prof.trace.readers import native


def timeline(program, folder):
    return device_timeline(native.read([program.write(folder)]), 0)


def train(program, iterations, *, evaluate=0, log=0, rng=None, kernels=9):
    for _ in range(37):
        program.launch("init", 3_000)
    for i in range(iterations):
        program.work(400_000)
        program.iteration()
        program.copy(af.HTOD, 20_000)
        for k in range(kernels):
            program.work(rng.randrange(20_000) if rng else 2_000)
            program.launch(f"layer{k % 4}", 30_000 + 1000 * k)
        program.launch("optimizer", 50_000)
        program.synchronize()
        if log and i % log == log - 1:
            program.copy(af.DTOH, 2_000)
        if evaluate and i % evaluate == evaluate - 1:
            for _ in range(3):
                program.copy(af.HTOD, 20_000)
                for k in range(kernels):
                    program.launch(f"layer{k % 4}", 30_000)
                program.synchronize()


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("evaluate", [0, 7])
@pytest.mark.parametrize("log", [0, 5])
def test_a_training_loop(tmp_path, calls, evaluate, log):
    program = af.Program(calls=calls)
    train(program, 30, evaluate=evaluate, log=log, rng=random.Random(1))
    found = timeline(program, tmp_path).iterations
    assert found.method == "period"
    assert found.confidence > 0.5
    assert found.count == 30
    assert found.starts.tolist() == program.starts


def solve(program, iterations, steps):
    """Time steps that each upload a value, and one value read back after the last."""
    for _ in range(iterations):
        program.work(50_000)
        program.iteration()
        for _ in range(steps):
            program.copy(af.HTOD, 2_000)
            program.launch("excite", 3_000)
            program.launch("advance", 20_000)
        program.launch("energy", 5_000)
        program.copy(af.DTOH, 2_000)
        program.synchronize()


@pytest.mark.parametrize(
    ("counted", "found"), [(None, 600), (600, 600), (30, 30), (28, 30), (33, 30), (7, 600), (0, 600)]
)
def test_a_program_that_counts_its_iterations_decides_what_repeats_inside_one(tmp_path, counted, found):
    program = af.Program()
    solve(program, 30, 20)
    trace = native.read([program.write(tmp_path)])
    seen = evidence(trace, counted)
    assert abs(seen.iterations - found) <= 1
    if found == 30:
        assert seen.structure["kernels"] == 41
        assert device_timeline(trace, 0, counted=counted).iterations.starts.tolist() == program.starts


def decode(program, tokens, layers, *, readback, wait=False):
    for _ in range(tokens):
        program.work(60_000)
        program.iteration()
        program.launch("embed", 3_000)
        for _ in range(layers):
            for name in ("norm", "qkv", "attention", "out", "norm", "up", "down", "add"):
                program.launch(name, 5_000)
            if wait:
                program.synchronize()
        program.launch("norm", 3_000)
        program.launch("head", 9_000)
        program.launch("argmax", 3_000)
        if readback:
            program.copy(af.DTOH, 2_000, size=4)
            program.synchronize()


@pytest.mark.parametrize("readback", [True, False])
@pytest.mark.parametrize("calls", [True, False])
def test_layers_are_not_iterations(tmp_path, readback, calls):
    program = af.Program(calls=calls)
    decode(program, 20, 24, readback=readback)
    found = timeline(program, tmp_path)
    assert found.iterations.count == 20
    assert found.iterations.starts.tolist() == program.starts
    assert found.structure.constant()["kernels"] == 24 * 8 + 4
    assert found.structure.constant()["syncs"] == readback


def test_layers_that_wait_for_the_device_are_no_iterations(tmp_path):
    program = af.Program()
    decode(program, 20, 24, readback=True, wait=True)
    found = timeline(program, tmp_path)
    assert found.iterations.count == 20
    assert found.structure.constant()["syncs"] == 25


def test_logging_in_a_loop_that_keeps_from_the_host(tmp_path):
    program = af.Program()
    for step in range(60):
        program.work(200_000)
        program.iteration()
        for k in range(300):
            program.launch(f"k{k % 299}", 5_000)
        if step % 10 == 9:
            program.copy(af.DTOH, 2_000, size=4)
            program.synchronize()
    found = timeline(program, tmp_path).iterations
    assert found.count == 60


def test_a_chain_of_two_alternating_kernels_is_not_an_iteration(tmp_path):
    program = af.Program()
    for _ in range(12):
        program.iteration()
        for _ in range(200):
            program.launch("a", 5_000)
            program.launch("b", 5_000)
        program.copy(af.DTOH, 5_000)
        program.synchronize()
    found = timeline(program, tmp_path).iterations
    assert found.count == 12
    assert found.starts.tolist() == program.starts


def test_graph_replays(tmp_path):
    program = af.Program()
    names = ["embed"] + ["norm", "gemm", "act", "gemm"] * 24 + ["head"]
    for _ in range(15):
        program.iteration()
        program.copy(af.HTOD, 5_000)
        program.graph_launch(names, 4_000)
        program.synchronize()
    found = timeline(program, tmp_path)
    assert found.iterations.starts.tolist() == program.starts
    assert found.structure.constant()["graph_launches"] == 1


def test_the_layers_of_one_graph_launch_are_none(tmp_path):
    program = af.Program()
    program.graph_launch(["norm", "gemm", "act"] * 40, 4_000)
    found = timeline(program, tmp_path)
    assert found.iterations.method == "none"
    assert found.window == "span"


def test_prefetch_on_a_second_stream(tmp_path):
    program = af.Program()
    program.copy(af.HTOD, 50_000, stream=9)
    for _ in range(25):
        program.work(150_000)
        program.iteration()
        for k in range(6):
            program.launch(f"k{k}", 40_000)
        program.copy(af.HTOD, 50_000, stream=9)
        program.synchronize()
    found = timeline(program, tmp_path).iterations
    assert found.count == 25
    assert found.starts.tolist() == program.starts


def test_a_loader_thread_that_interleaves_as_it_likes(tmp_path):
    program, rng = af.Program(), random.Random(3)
    for _ in range(40):
        uploads = sorted(rng.randrange(12) for _ in range(2))
        program.work(100_000)
        program.iteration()
        for k in range(12):
            program.launch(f"k{k}", 30_000)
            for _ in range(uploads.count(k)):
                program.copy(af.HTOD, 10_000, stream=9)
        program.synchronize()
    found = timeline(program, tmp_path)
    assert found.iterations.count == 40
    assert np.median(found.structure.counts["kernels"]) == 12


def test_shapes_that_choose_kernels(tmp_path):
    program, rng = af.Program(), random.Random(4)
    for _ in range(40):
        program.work(100_000)
        program.iteration()
        program.copy(af.HTOD, 10_000, size=rng.randrange(1000))
        for k in range(8):
            program.launch(
                f"gemm_{rng.choice([64, 128, 256])}x{rng.choice([32, 64])}_{'abcdefgh'[k]}", 30_000
            )
        program.synchronize()
    found = timeline(program, tmp_path)
    assert found.iterations.starts.tolist() == program.starts
    assert found.structure.constant()["kernels"] == 8
    assert found.structure.constant()["copy_bytes"] is None


def test_no_kernel_comes_once_per_iteration(tmp_path):
    program = af.Program()
    for _ in range(15):
        program.iteration()
        for name in "aababbabaabbbaabbb":
            program.launch(name, 10_000)
        program.work(50_000)
    found = timeline(program, tmp_path).iterations
    assert found.count == 15
    assert found.starts.tolist() == program.starts


def test_large_layers_with_a_small_head_and_tail(tmp_path):
    program = af.Program()
    for _ in range(10):
        program.work(100_000)
        program.iteration()
        program.launch("embed", 3_000)
        for _ in range(12):
            for i in range(60):
                program.launch(f"op{i % 45}", 5_000)
        program.launch("head", 9_000)
        program.copy(af.DTOH, 2_000, size=4)
        program.synchronize()
    found = timeline(program, tmp_path).iterations
    assert found.starts.tolist() == program.starts


@given(st.lists(st.integers(0, 40), min_size=20, max_size=200), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_random_work_never_fails(tmp_path, names, rng):
    program = af.Program()
    for name in names:
        program.work(rng.randrange(50_000))
        program.launch(f"k{name}", 10_000)
    found = timeline(program, tmp_path).iterations
    assert 0 <= found.confidence <= 1
    assert (np.diff(found.starts) > 0).all()


@given(
    st.lists(st.sampled_from(("upload", "read", "wait", "adam", "a", "b", "c")), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), min_size=10, max_size=60),
    st.integers(1, 20),
)
@settings(max_examples=80)
def test_work_that_meets_the_host_anyhow_never_fails(tmp_path, body, odd, count):
    program = af.Program()
    steps = {
        "upload": lambda: program.copy(af.HTOD, 5_000),
        "read": lambda: program.copy(af.DTOH, 2_000),
        "wait": program.synchronize,
    }
    program.launch("first", 1_000)
    for i in range(count):
        for name in [*body, body[odd[i % len(odd)] % len(body)] if odd[i % len(odd)] > 8 else body[0]]:
            steps.get(name, lambda name=name: program.launch(name, 10_000))()
    found = timeline(program, tmp_path).iterations
    assert 0 <= found.confidence <= 1
    assert (np.diff(found.starts) > 0).all()
    assert np.isin(found.starts, device_starts(tmp_path)).all()


def device_starts(folder):
    trace = native.read([folder / "h-100-0.aiprof"])
    return np.concatenate((trace.kernels.start, trace.memory.start))


def test_no_repetition_is_none(tmp_path):
    program = af.Program()
    for i in range(300):
        program.launch("".join(random.Random(i).choices("abcdefgh", k=6)), 10_000)
    found = timeline(program, tmp_path)
    assert found.iterations.method == "none"
    assert found.iterations.count == 0


@given(
    body=st.lists(st.integers(0, 5), min_size=3, max_size=30),
    count=st.integers(6, 25),
    odd=st.integers(0, 24),
)
@settings(max_examples=60)
def test_any_body_with_a_batch_and_one_odd_iteration(tmp_path, body, count, odd):
    program = af.Program()
    for i in range(count):
        program.work(300_000)
        program.iteration()
        program.copy(af.HTOD, 10_000)
        for name in body + ([9] if i == odd else []):
            program.launch(f"kernel_{'abcdefghij'[name]}", 20_000)
        program.synchronize()
    found = timeline(program, tmp_path).iterations
    assert found.count == count
    assert found.starts.tolist() == program.starts


def test_slow_first_iterations_are_warm_up(tmp_path):
    program = af.Program()
    for i in range(20):
        program.work(20_000_000 if i < 2 else 300_000)
        program.iteration()
        program.copy(af.HTOD, 10_000)
        for k in range(4):
            program.work(5_000_000 if i < 2 else 0)
            program.launch(f"k{k}", 20_000)
        program.synchronize()
    found = timeline(program, tmp_path)
    assert found.iterations.count == 20
    assert found.iterations.warm_up == 2
    assert found.busy.low == program.starts[2]
    assert found.busy.high == program.starts[-1]
    assert found.iterations_in_window == 17


@pytest.mark.parametrize(
    ("label", "method"), [("ProfilerStep#{}", "profiler_step"), ("iteration {}", "nvtx")]
)
@pytest.mark.parametrize("calls", [True, False])
def test_markers_decide(tmp_path, label, method, calls):
    program, rng = af.Program(calls=calls), random.Random(5)
    for i in range(6):
        begin = program.now
        program.iteration()
        for _ in range(rng.randrange(3, 30)):
            program.launch(f"k{rng.randrange(9)}", 10_000)
        program.synchronize()
        program.range(label.format(i), begin, program.now)
        program.range("forward", begin, begin + 5)
    found = timeline(program, tmp_path).iterations
    assert found.method == method
    assert found.starts.tolist() == program.starts
    assert found.count == 6


def test_ranges_beside_a_kernel_with_a_very_long_name(tmp_path):
    program = af.Program()
    for i in range(40):
        begin = program.now
        program.iteration()
        program.launch("cutlass" * 50_000, 10_000)
        program.range(f"step {i}", begin, program.now)
    trace = native.read([program.write(tmp_path)])
    tracemalloc.start()
    found = device_timeline(trace, 0).iterations
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.method, found.count) == ("nvtx", 40)
    assert most < 20_000_000  # bytes


def test_the_process_with_most_work_is_followed(tmp_path):
    big, small = af.Program(pid=1), af.Program(pid=2)
    train(big, 12)
    small.launch("other", 10_000)
    paths = [big.write(tmp_path, "a.aiprof"), small.write(tmp_path, "b.aiprof")]
    found = device_timeline(native.read(paths), 0)
    assert found.iterations.count == 12
    assert found.structure.constant()["kernels"] == 10
