"""Runs a program under torch.profiler. Usage: profiled.py TRACE.json PROGRAM [ARGUMENT...]."""

import runpy
import sys

from torch.profiler import ProfilerActivity, profile

trace, program, *arguments = sys.argv[1:]
sys.argv = [program, *arguments]
with profile(activities=[ProfilerActivity.CUDA]) as profiler:
    runpy.run_path(program, run_name="__main__")
profiler.export_chrome_trace(trace)
