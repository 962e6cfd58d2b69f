"""The programs to record, by name, and what their captures are to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aperiodic import algebra, shuffled, tree
from faults import loading, training
from loops import bare_kernel, cupy_loop, huge_kernel, jax_train, reference_workload, streams
from serving import graph_decode, prefill_decode
from training import accumulation, compiled, evaluation, gan, search, sparse_readback, varying_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from marks import Marks

PROGRAMS: dict[str, Callable[[Marks], None]] = {
    "torch_train": reference_workload("torch_train", "--iterations", "50"),
    "torch_decode": reference_workload("torch_decode", "--iterations", "150"),
    "jax_train": jax_train,
    "cupy_loop": cupy_loop,
    "graph_decode": graph_decode,
    "accumulation": accumulation,
    "evaluation": evaluation,
    "varying_lengths": varying_lengths,
    "prefill_decode": prefill_decode,
    "huge_kernel": huge_kernel,
    "bare_kernel": bare_kernel,
    "streams": streams,
    "search": search,
    "gan": gan,
    "sparse_readback": sparse_readback,
    "shuffled": shuffled,
    "tree": tree,
    "algebra": algebra,
    "base": training(),
    "stall_start": training("stall_start"),
    "stall_middle": training("stall_middle"),
    "tiny": training("tiny"),
    "log": training("log"),
    "wait": training("wait"),
    "sync": training("sync"),
    "loader_4": loading(4),
    "loader_0": loading(0),
    "torch_train_stall": reference_workload("torch_train", "--iterations", "40", "--regress", "stall"),
    "torch_train_sync": reference_workload("torch_train", "--iterations", "40", "--regress", "sync"),
    "torch_decode_stall": reference_workload("torch_decode", "--iterations", "80", "--regress", "stall"),
    "torch_decode_sync": reference_workload("torch_decode", "--iterations", "150", "--regress", "sync"),
    "torch_decode_tiny": reference_workload("torch_decode", "--iterations", "80", "--regress", "tiny"),
    "compiled": compiled,  # the last one, as it may take a minute
}
