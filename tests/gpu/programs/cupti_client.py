"""A client of CUPTI's beside a loop of CUDA graphs, with nothing of ai-prof.

Usage: cupti_client.py [calls] [threads] [finalize] [busy] [settle]. For each line that it reads it records a
little, as ai-prof does, and writes a line. With `calls` it switches off most host calls one by one, with
`threads` it calls CUPTI by a thread of its own, and with `finalize` it ends with that. With `busy` the device
is at work when it ends, and with `settle` it waits for that before its last flush.
"""

import ctypes
import sys
import threading
import time
from pathlib import Path

import torch

SECONDS = 0.3
SETTLE_S = 0.02
SLOT, SLOTS = 1 << 20, 64
KINDS = (10, 9, 1, 22, 2, 17, 12, 5, 4)  # kernels, contexts, copies, sets, overhead, markers, calls
CALLS = {"cuptiActivityEnableRuntimeApi": 5, "cuptiActivityEnableDriverApi": 4}
CALL_IDS = 1024
FORCED = 1
SYSTEM_IDS = 1
DEVICE_BUFFERS = {0: ctypes.c_size_t(3_200_000), 2: ctypes.c_size_t(64)}  # size, and most
FOR_ALL_THREADS = {9: ctypes.c_uint8(0)}

NUMBER = ctypes.POINTER(ctypes.c_size_t)
REQUESTED = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), NUMBER, NUMBER)
COMPLETED = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)

(path, *_) = sorted(Path(torch.__path__[0]).parent.glob("nvidia/**/libcupti.so*"))
cupti = ctypes.CDLL(str(path))
memory = ctypes.create_string_buffer(b"\1" * (SLOT * SLOTS))  # all of it there from the start
free = [ctypes.addressof(memory) + SLOT * slot for slot in range(SLOTS)]
recorded = 0


@REQUESTED
def requested(buffer, size, most):
    buffer[0], size[0], most[0] = free.pop(), SLOT, 0


@COMPLETED
def completed(_context, _stream, buffer, _size, valid):
    global recorded  # noqa: PLW0603
    recorded += valid
    free.append(buffer)


@CALLED
def called(*_):
    pass


def call(name, *words):
    if code := getattr(cupti, name)(*words):
        sys.exit(f"{name}: error {code}")


def begin(subscriber, wishes):
    call("cuptiSubscribe", ctypes.byref(subscriber), called, None)
    for attribute, value in (DEVICE_BUFFERS | FOR_ALL_THREADS).items():
        size = ctypes.c_size_t(ctypes.sizeof(value))
        call("cuptiActivitySetAttribute", attribute, ctypes.byref(size), ctypes.byref(value))
    call("cuptiSetThreadIdType", SYSTEM_IDS)
    call("cuptiActivityRegisterCallbacks", requested, completed)
    for kind in KINDS:
        call("cuptiActivityEnable", kind)
    for name in CALLS if "calls" in wishes else ():
        for number in range(20, CALL_IDS):
            getattr(cupti, name)(number, 0)  # there are not so many


def end(subscriber, wishes):
    for kind in CALLS.values():  # so that single calls are forgotten
        call("cuptiActivityDisable", kind)
        call("cuptiActivityEnable", kind)
    for kind in KINDS:
        call("cuptiActivityDisable", kind)
    if "settle" in wishes:
        time.sleep(SETTLE_S)
    call("cuptiActivityFlushAll", FORCED)
    call("cuptiUnsubscribe", subscriber)
    if "finalize" in wishes:
        call("cuptiFinalize")


def by_thread(task, *words):
    thread = threading.Thread(target=task, args=words)
    thread.start()
    thread.join()


def graph():
    x = torch.randn(64, 64, device="cuda")

    def layers():
        y = x
        for _ in range(96):
            y = torch.relu(y + 1)

    layers()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        layers()
    return made


def main():
    wishes = sys.argv[1:]
    made = graph()

    def work(seconds=SECONDS):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            made.replay()
            torch.cuda.synchronize()

    work()
    do = by_thread if "threads" in wishes else lambda task, *words: task(*words)
    beside = threading.Thread(target=work, args=(float("inf"),), daemon=True) if "busy" in wishes else None
    for _ in sys.stdin:
        if beside is not None and not beside.is_alive():
            beside.start()
        subscriber = ctypes.c_void_p()
        do(begin, subscriber, wishes)
        if beside is None:
            work()
        else:
            time.sleep(SECONDS)
        do(end, subscriber, wishes)
        print(recorded, len(free), flush=True)


main()
