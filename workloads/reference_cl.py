"""The few OpenCL steps that the OpenCL reference workloads share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl
from pocl_cpu import teach

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class Program:
    """A context, its kernels and a count of the launches that went through `launch`."""

    def __init__(self, source: str) -> None:
        # PYOPENCL_CTX, set in workload.toml, names the platform.
        self.context = cl.create_some_context(interactive=False)
        teach(self.context.devices[0])
        self.kernels = {k.function_name: k for k in cl.Program(self.context, source).build().all_kernels()}
        self.launches = 0

    def queue(self) -> cl.CommandQueue:
        """Return a new in-order queue."""
        return cl.CommandQueue(self.context)

    def buffer(self, host: np.ndarray) -> cl.Buffer:
        """Return a device buffer that starts as a copy of `host`."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=host)

    def launch(  # noqa: PLR0913 - as many as OpenCL's own call
        self,
        queue: cl.CommandQueue,
        name: str,
        size: Sequence[int],
        local: Sequence[int],
        *args: object,
        offset: Sequence[int] | None = None,
        wait_for: Sequence[cl.Event] = (),
    ) -> cl.Event:
        """Enqueue kernel `name` over `size` work-items, in groups of `local`."""
        kernel = self.kernels[name]
        kernel.set_args(*args)
        self.launches += 1
        return cl.enqueue_nd_range_kernel(
            queue, kernel, tuple(size), tuple(local), offset, wait_for=list(wait_for)
        )
