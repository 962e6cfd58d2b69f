"""Starts Python programs out of a parent that has already imported what they need.

`forked.py serve SOCKET MODULE...` imports the modules, which must not touch a device, and forks a process for
each `forked.py run SOCKET SCRIPT ARGUMENT...`, which gives it its environment, folder, stdout and stderr, and
takes its exit code. The fork runs the script as `__main__` and ends as any Python does. What differs from a
fresh process: the addresses of the imported libraries and the seed of `hash`, which are the parent's.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

POLL_S = 0.01


def serve(path: str, modules: list[str]) -> tuple[str, list[str]] | None:
    """Fork for every request; in a fork the script and its arguments are returned."""
    for name in modules:
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    Path(f"{path}.ready").touch()
    while True:
        connection, _ = listener.accept()
        request, streams = receive(connection)
        child = os.fork()
        if not child:
            listener.close()
            connection.close()
            return become(request, streams)
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(ended(child, connection))
        connection.sendall(json.dumps(code).encode())
        connection.close()


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One request and the stdout and stderr that came with it."""
    text, control, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(8))
    while not text.endswith(b"\n"):
        text += connection.recv(1 << 20)
    descriptors = array.array("i")
    for _, _, data in control:
        descriptors.frombytes(data)
    return json.loads(text), list(descriptors)


def become(request: dict[str, Any], streams: list[int]) -> tuple[str, list[str]]:
    """Take the requester's environment, folder and streams."""
    os.setsid()
    for stream, standard in zip(streams, (1, 2), strict=True):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    return request["script"], request["arguments"]


def ended(child: int, connection: socket.socket) -> int:
    """The status of the child once it has ended; one that nobody waits for any more is killed."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if select.select([connection], [], [], POLL_S)[0]:
            os.killpg(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]


def run(path: str, script: str, arguments: list[str]) -> int:
    """Have a script run by the server at `path`; its exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = {
        "script": script,
        "arguments": arguments,
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
    }
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]
    text = json.dumps(request).encode() + b"\n"
    sent = connection.sendmsg([text], streams)
    connection.sendall(text[sent:])
    code = int(json.loads(connection.recv(64) or b"1"))
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    verb, where, *rest = sys.argv[1:]
    if verb == "run":
        sys.exit(run(where, rest[0], rest[1:]))
    asked = serve(where, rest)
    if asked is not None:
        sys.argv = [asked[0], *asked[1]]
        sys.path[0] = str(Path(asked[0]).resolve().parent)
        runpy.run_path(asked[0], run_name="__main__")
