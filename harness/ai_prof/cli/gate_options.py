"""The options that `gate` and `baseline refresh` share, and the request that they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_prof.cli.settings import LEAST_RUNS, MOST_RUNS, Settings, load
from ai_prof.errors import UsageError
from ai_prof.runs.gated import Request
from ai_prof.runs.interpreter import interpreter

if TYPE_CHECKING:
    import argparse

PYTHON = (
    "interpreter that runs the workloads (default: for cuda the first on PATH that has what they require, "
    "else the one that runs ai-prof)"
)


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Declare what to run and where its baselines lie."""
    parser.add_argument(
        "workload", nargs="*", metavar="WORKLOAD", help="what to run (default: all for the device)"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "opencl"),
        default="auto",
        help="auto: cuda where there is a GPU, else opencl (default)",
    )
    parser.add_argument(
        "--runs", type=int, metavar="N", help="processes per workload, 3 or more (default: 3)"
    )
    parser.add_argument(
        "--baselines", type=Path, metavar="DIR", help="where baselines lie (default: baselines)"
    )
    parser.add_argument("--python", metavar="PATH", help=PYTHON)
    parser.epilog = "[tool.ai-prof] in pyproject.toml may set other defaults."


def make_request(args: argparse.Namespace, **more: Any) -> tuple[Request, Settings]:
    """The request of these arguments, with the project's settings for what they leave open."""
    root = Path.cwd()
    settings = load(root)
    runs = settings.runs if args.runs is None else args.runs
    if not LEAST_RUNS <= runs <= MOST_RUNS:
        raise UsageError(f"--runs {runs} must be {LEAST_RUNS} to {MOST_RUNS}: a median needs 3 or more")
    if args.python is None and settings.python is not None:
        interpreter(settings.python, "python of [tool.ai-prof] in pyproject.toml:")
    request = Request(
        root=root,
        workloads=root / settings.workloads,
        baselines=args.baselines or root / settings.baselines,
        names=tuple(args.workload),
        device=args.device,
        runs=runs,
        python=args.python or settings.python,
        alpha=settings.alpha,
        fail_on=settings.fail_on,
        budget_minutes=settings.budget_minutes,
        build=settings.build,
        rules=settings.rules,
        own_baselines=root / settings.baselines,
        **more,
    )
    return request, settings
