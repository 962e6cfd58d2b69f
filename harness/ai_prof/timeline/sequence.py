"""What a process asked of a device, in the order in which it asked: tokens that repeat every iteration."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.names import normalise
from ai_prof.timeline.syncs import host_syncs
from ai_prof.trace.model import CopyKind
from ai_prof.trace.tables import compact

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace

SYNC_TOKEN = 0  # tokens below SYNC_TOKEN + 16 are synchronizes, then copies by kind, then kernels by name
COPY_TOKEN = 16
KERNEL_TOKEN = 32
UPLOAD_TOKEN = COPY_TOKEN + int(CopyKind.HOST_TO_DEVICE)
READBACK_TOKEN = COPY_TOKEN + int(CopyKind.DEVICE_TO_HOST)
WAITS, READS, UPLOADS, UPDATES = 1, 2, 3, 4
_UPDATE = re.compile(
    r"multi_tensor_apply|optimizer|(?<![a-z])(adam[wx]?|adagrad|adafactor|lamb|lion|muon|rmsprop|sgd)(?![a-z])"
)
"""Kernels, in small letters, that update a model's parameters, which ends a training step."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """n rows in launch order: device operations and host synchronizes.

    `operation` is the row in the Operations and -1 for a synchronize; `launch` the correlation, 0 without
    one; `pause` the host's (with calls) or else the device's idle time before it, ns; `contact` is WAITS,
    READS, UPLOADS or UPDATES where a row tells of an iteration by itself, else 0.
    """

    token: I32
    contact: npt.NDArray[np.int8]
    operation: I32
    launch: I64
    pause: I64

    def __len__(self) -> int:
        return len(self.token)

    def without(self, dropped: npt.NDArray[np.bool_]) -> Sequence:
        """The sequence without some rows, given as (n,) flags."""
        kept = ~dropped
        return Sequence(**{name: getattr(self, name)[kept] for name in self.__dataclass_fields__})

    @property
    def is_sync(self) -> npt.NDArray[np.bool_]:
        """Which rows are synchronizes."""
        return np.asarray(self.token < COPY_TOKEN)


def main_process(operations: Operations) -> int:
    """The process with most operations on the device."""
    return int(np.bincount(operations.process).argmax())


def launch_sequence(trace: Trace, operations: Operations, device: int) -> Sequence:
    """The sequence of the device's main process.

    Correlations count up call by call, so they are the launch order; operations of one launch (a graph)
    are ordered by graph node. Work without a correlation follows what started before it.
    """
    process = main_process(operations)
    ops = np.flatnonzero(operations.process == process).astype(np.int32)
    correlation = operations.correlation[ops]
    syncs = host_syncs(trace, device, operations)
    syncs = syncs[trace.syncs.process[syncs] == process]
    if (correlation > 0).mean() > 0.5:
        # Only synchronizes that the same counter numbers have a place in the order of launches.
        syncs = syncs[trace.syncs.correlation[syncs] > 0]
        order = _order(trace, operations, ops, syncs, (_filled(correlation), trace.syncs.correlation[syncs]))
    else:
        order = _order(trace, operations, ops, syncs, (operations.start[ops], trace.syncs.start[syncs]))
    launch = np.concatenate((correlation, trace.syncs.correlation[syncs]))[order]
    token = np.concatenate((_tokens(operations)[ops], SYNC_TOKEN + trace.syncs.kind[syncs]))[order]
    operation = np.concatenate((ops, np.full(len(syncs), -1, np.int32)))[order]
    sync = syncs[order[operation < 0] - len(ops)]
    pauses = _pauses(trace, operations, operation, sync)
    return Sequence(token, _contact(trace.names, token), operation, launch, pauses)


def _order(
    trace: Trace, operations: Operations, ops: I32, syncs: I64, keys: tuple[I64, I64]
) -> npt.NDArray[np.intp]:
    """The order of some operations and, numbered after them, synchronizes: by key, graph node and start."""
    start = np.concatenate((operations.start[ops], trace.syncs.start[syncs]))
    node = np.concatenate((operations.graph_node[ops], np.zeros(len(syncs), np.int64)))
    return np.lexsort((start, compact(node), np.concatenate(keys)))


def normalised(token: I32, names: tuple[str, ...]) -> I32:
    """The tokens, (n,), with one for all kernels whose normalised names are equal."""
    numbers: dict[str, int] = {}
    of_name = np.array(
        [numbers.setdefault(normalise(name), len(numbers)) for name in names] + [len(names)], np.int32
    )
    kernel = token >= KERNEL_TOKEN
    token = token.copy()
    token[kernel] = KERNEL_TOKEN + 1 + of_name[token[kernel] - KERNEL_TOKEN - 1]
    return token


def bones(sequence: Sequence) -> tuple[Sequence, I64]:
    """Only what tells of an iteration by itself, with one row for each run of like work between.

    Rows that change from iteration to iteration, as shapes choose kernels, leave no trace in it. Also the
    positions of its rows in `sequence`; (n,).
    """
    token = np.where(sequence.contact == 0, KERNEL_TOKEN, sequence.token)
    token = np.where(sequence.contact == UPDATES, KERNEL_TOKEN + 1, token)
    repeats = np.zeros(len(token), bool)
    repeats[1:] = token[1:] == token[:-1]
    return replace(sequence, token=token).without(repeats), np.flatnonzero(~repeats).astype(np.int64)


def _contact(names: tuple[str, ...], token: I32) -> npt.NDArray[np.int8]:
    """How closely each row meets the host or the model; (n,)."""
    contact = np.zeros(KERNEL_TOKEN + 1 + len(names), np.int8)  # of each token
    contact[:COPY_TOKEN], contact[READBACK_TOKEN], contact[UPLOAD_TOKEN] = WAITS, READS, UPLOADS
    contact[KERNEL_TOKEN + 1 :] = [UPDATES * bool(_UPDATE.search(name.lower())) for name in names]
    return contact[token]


def _filled(correlation: I64) -> I64:
    """Each row's correlation, or the last one before it."""
    if (correlation > 0).all():
        return correlation
    last = np.maximum.accumulate(np.where(correlation > 0, np.arange(len(correlation)), 0))
    return correlation[last]


def _tokens(operations: Operations) -> I32:
    # An unknown name (-1) has a token of its own.
    return np.where(
        operations.is_kernel, KERNEL_TOKEN + 1 + operations.name, COPY_TOKEN + operations.kind
    ).astype(np.int32, copy=False)


def _pauses(trace: Trace, operations: Operations, operation: I32, sync: I64) -> I64:
    """Idle time before each row: of the host between its calls, or of the device where no calls are known.

    `sync` are the rows in `trace.syncs` of the synchronizes, whose `operation` is -1.
    """
    if not len(operation):
        return np.zeros(0, np.int64)
    is_sync = operation < 0
    begin = np.where(is_sync, 0, operations.launch[operation])
    end = np.where(is_sync, 0, operations.launched[operation])
    if (begin[~is_sync] >= 0).mean() > 0.9:
        begin[is_sync], end[is_sync] = trace.syncs.start[sync], trace.syncs.end[sync]
    else:
        begin, end = operations.start[operation], operations.end[operation]
        begin[is_sync] = end[is_sync] = -1
    reach = np.concatenate(([begin[0]], np.maximum.accumulate(end)[:-1]))
    pauses: I64 = np.maximum(begin - reach, 0)
    return pauses
