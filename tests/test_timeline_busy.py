from __future__ import annotations

import aiprof_file as af
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.timeline.busy import busy, copy_compute_overlap, stream_concurrency
from ai_prof.timeline.communication import comm_exposed, is_communication
from ai_prof.timeline.kernels import kernel_figures
from ai_prof.timeline.names import normalise, short
from ai_prof.timeline.operations import busy_devices, device_operations
from ai_prof.timeline.syncs import sync_figures
from ai_prof.trace.readers import native

SPAN = 300
operations = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "copy", "set"]),
        st.integers(1, SPAN - 1),
        st.integers(0, 60),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=25,
)


def trace_of(capture, folder):
    return native.read([capture.write(folder)])


@given(operations)
@settings(deadline=None)
def test_shares_are_those_of_a_bitmap(tmp_path_factory, rows):
    capture = af.Capture()
    capture.device()
    capture.clock(1, 1, 1)
    bits = {kind: np.zeros(SPAN * 2, bool) for kind in ("kernel", "copy", "set")}
    streams = {}
    for kind, start, length, stream in rows:
        end = start + length
        bits[kind][start:end] = True
        streams.setdefault(stream, np.zeros(SPAN * 2, bool))[start:end] = True
        if kind == "kernel":
            capture.kernel("k", start, end, stream=stream)
        else:
            capture.memory(af.HTOD if kind == "copy" else 6, start, end, stream=stream)
    low, high = min(s for _, s, _, _ in rows), max(s + n for _, s, n, _ in rows)
    found = device_operations(trace_of(capture, tmp_path_factory.mktemp("busy")), 0)
    spent = busy(found, low, high)
    kernels, copies = bits["kernel"], bits["copy"] | bits["set"]
    assert spent.kernel == kernels.sum()
    assert spent.copy_only == (copies & ~kernels).sum()
    assert spent.kernel + spent.copy_only + spent.gap == high - low
    memcpy = bits["copy"].sum()
    overlap = copy_compute_overlap(found, low, high)
    assert overlap == ((bits["copy"] & kernels).sum() / memcpy if memcpy else None)
    work = (kernels | copies).sum()
    expected = sum(s.sum() for s in streams.values()) / work if work else 0
    assert stream_concurrency(found, low, high) == pytest.approx(expected)


def test_work_is_clipped_to_the_window(tmp_path):
    capture = af.Capture()
    capture.device()
    capture.kernel("k", 10, 30)
    found = device_operations(trace_of(capture, tmp_path), 0)
    assert busy(found, 20, 40).kernel == 10
    assert kernel_figures(found, 20, 40).count == 0
    assert kernel_figures(found, 10, 40).count == 1


def test_kernel_figures(tmp_path):
    capture = af.Capture()
    capture.device()
    for i, length in enumerate([10_000, 20_000, 30_000, 40_000]):
        capture.kernel("k", 1 + i * 100_000, 1 + i * 100_000 + length)
    figures = kernel_figures(device_operations(trace_of(capture, tmp_path), 0), 0, 10**9)
    assert (figures.count, figures.mean_us, figures.p50_us, figures.tiny_share) == (4, 25.0, 25.0, 0.25)


def test_devices_are_apart(tmp_path):
    capture = af.Capture()
    capture.device(0)
    capture.device(1, "other")
    capture.device(2, "idle")
    capture.kernel("a", 10, 20, device=0)
    capture.memory(af.HTOD, 10, 20, device=1)
    trace = trace_of(capture, tmp_path)
    assert busy_devices(trace) == [0, 1]
    assert len(device_operations(trace, 1)) == 1


def test_communication_counts_where_nothing_computes(tmp_path):
    capture = af.Capture()
    capture.device()
    capture.kernel("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 100, 200, stream=1)
    capture.kernel("gemm", 150, 300, stream=2)
    trace = trace_of(capture, tmp_path)
    assert comm_exposed(device_operations(trace, 0), trace.names, 100, 300) == 50


def test_communication_names():
    assert is_communication("ncclKernel_AllGather")
    assert is_communication("void vllm::cross_device_reduce_1stage<half, 8>")
    assert not is_communication("void at::native::reduce_kernel<512, 1>")


def test_synchronizes_are_counted_by_kind_and_stream_waits_are_not(tmp_path):
    capture = af.Capture()
    capture.device()
    capture.kernel("k", 10, 20)
    capture.sync(af.STREAM_SYNC, 10, 30, thread=1)
    capture.sync(af.EVENT_SYNC, 20, 40, thread=1, device=af.NONE32)
    capture.sync(af.CONTEXT_SYNC, 20, 40, thread=2)
    capture.sync(af.STREAM_WAIT, 20, 40)
    capture.sync(af.STREAM_SYNC, 95, 120, thread=1)
    trace = trace_of(capture, tmp_path)
    figures = sync_figures(trace, 0, device_operations(trace, 0), 5, 100)
    assert figures.by_kind == {"event_synchronize": 1, "stream_synchronize": 2, "context_synchronize": 1}
    assert figures.count == 4
    assert figures.blocked_ns == 30 + 5 + 20


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_64x64_tn"),
        ("kernel_0x7f3a12b0", "kernel_0x7f00aa"),
        (
            "void vectorized_elementwise_kernel<4, Add<float>>(int, float)",
            "vectorized_elementwise_kernel<2, Add<float>>",
        ),
        ("triton_poi_fused_add_3", "triton_poi_fused_add_17"),
        ("f(lambda()#1)", "f(lambda()#2)"),
        (
            "map<g(It&)::{lambda()#1}::operator()() const::{lambda(long, long)#1}, array<char*, 2ul> >",
            "map<g(It&)::{lambda()#2}::operator()() const::{lambda(long, long)#4}, array<char*, 4ul> >",
        ),
    ],
)
def test_names_that_differ_by_noise_are_one(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gemm_fp16", "gemm_fp32"),
        ("copy<float>", "copy<double>"),
        ("cast_int8", "cast_int32"),
        ("elementwise<Add<float>>", "elementwise<Mul<float>>"),
    ],
)
def test_names_that_differ_in_kind_stay_apart(one, other):
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("void at::native::reduce_kernel<512, Op<float>>(int)", "reduce_kernel<Op<float>>"),
        (
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
                "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
            ),
            "vectorized_elementwise_kernel<FillFunctor<float>>",
        ),
        (
            (
                "void at::native::vectorized_elementwise_kernel<(int)4, "
                "at::native::neg_kernel_cuda(at::Iter &)::"
                "{lambda() (instance 1)}::operator ()() const::{lambda(float) (instance 2)}, "
                "std::array<char *, (unsigned long)2>>(int, T2, T3)"
            ),
            "vectorized_elementwise_kernel<neg_kernel_cuda>",
        ),
        (
            "void apply<4, pow(Iter&)::{lambda()#1}::operator()() const::{lambda(float, float)#1}>(int)",
            "apply<pow>",
        ),
        (
            (
                "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, "
                "float, long>(float*, float*, float const*, long const*, float const*, bool, long)"
            ),
            "nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
        ),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ],
)
def test_short_names_keep_what_tells_kernels_apart(name, told):
    assert short(name) == told


def test_short_names_are_cut():
    assert len(short("x" * 200)) == 60
    assert short("sm80_xmma_gemm_" + "f32" * 30 + "_splitKreduce_kernel").endswith("_splitKreduce_kernel")
