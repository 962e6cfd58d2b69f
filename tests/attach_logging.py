"""A program whose step logs slowly between two kernels, on the mock of CUDA; knows nothing of who watches.

Usage: attach_logging.py LIBCUDA LIBCUPTI STEPS. Prints a line when it runs, and counts its steps in
the file STEPS.
"""

import ctypes
import itertools
import logging
import os
import pathlib
import struct
import sys
import threading
import time

KERNEL, COPY, CALL = 10, 1, 5  # CUPTI's kinds of records
LAUNCH, COPY_ASYNC = 211, 41  # of runtime calls
NAMES = [ctypes.create_string_buffer(name) for name in (b"first", b"second")]


def emit(cupti, kind, size, fields):
    record = bytearray(size)
    struct.pack_into("<I", record, 0, kind)
    for offset, code, value in fields:
        struct.pack_into(f"<{code}", record, offset, value)
    cupti.mock_emit(bytes(record), size)


def submit(cupti, call, correlation):
    now = cupti.mock_now()
    fields = [(8, "Q", now - 5000), (16, "Q", now - 1000), (28, "I", threading.get_native_id())]
    emit(cupti, CALL, 40, [(4, "I", call), *fields, (24, "I", os.getpid()), (32, "I", correlation)])
    return now


def upload(cupti, correlation):
    now = submit(cupti, COPY_ASYNC, correlation)
    emit(
        cupti,
        COPY,
        80,
        [(4, "B", 1), (8, "Q", 4096), (16, "Q", now), (24, "Q", now + 20000), (44, "I", correlation)],
    )


def launch(cupti, name, correlation):
    now = submit(cupti, LAUNCH, correlation)
    times = [(16, "Q", now), (24, "Q", now + 500_000)]
    emit(cupti, KERNEL, 216, [*times, (92, "I", correlation), (104, "Q", ctypes.addressof(name))])


def log_metrics(values):
    logging.getLogger("metrics").info("metrics %s", values)


def main():
    ctypes.CDLL(sys.argv[1])
    cupti = ctypes.CDLL(sys.argv[2])
    steps = pathlib.Path(sys.argv[3])
    cupti.mock_now.restype = ctypes.c_uint64
    logging.basicConfig(filename=os.devnull, level=logging.INFO)
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # as CUDA's own threads do
    print("running", flush=True)
    values = list(range(200_000))
    for step in itertools.count(1):
        correlation = 3 * step
        upload(cupti, correlation)
        launch(cupti, NAMES[0], correlation + 1)
        log_metrics(values)
        launch(cupti, NAMES[1], correlation + 2)
        steps.write_text(str(step))
        time.sleep(0.001)


main()
