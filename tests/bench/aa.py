"""Gates this code against itself, again and again: false alarms of the whole gate.

    python tests/bench/aa.py [--builds 20] [--minutes M] [--forked] [GATE ARGUMENT...] # fresh, made here
    python tests/bench/aa.py --from DIR [DIR...] [--builds 200]                 # drawn from stored runs

Fresh builds go through the command itself; the first one records a baseline where there is none. Drawn ones
take identical runs, of record.py or of a machine's folder of baselines, and call some of them a candidate, as
`ai-prof calibrate` does. Prints what each build flagged and failed, keeps it with earlier ones in
figures/aa.jsonl, and writes docs/aa.md: the rate of false alarms with its upper 95 % bound (Clopper and
Pearson), and how near the rest came. Ends with 1 where more fresh builds failed than alpha allows by chance
(p < 0.01).
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from scipy import special, stats

sys.path.insert(0, str(Path(__file__).parent))
import campaign
import doc_tables
from record import parents

from ai_prof.baselines import store
from ai_prof.baselines.files import write_file
from ai_prof.gate import decide, screen
from ai_prof.gate.calibration import Calibration, calibrate
from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import BuildVerdict, Evidence, Reason
from ai_prof.runs.workloads import find

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ai_prof.gate.metrics import Backend
    from ai_prof.gate.model import Run
    from ai_prof.timeline.profile import Profile

ROOT = Path(__file__).parents[2]
RAW = Path(__file__).parent / "figures" / "aa.jsonl"
PAGE = ROOT / "docs" / "aa.md"
HEAD = """\
# The gate against itself

Builds of one code, so that whatever fails is a false alarm. Written by `nox -s aa` from
`tests/bench/figures/aa.jsonl`. The bound is the upper 95 % one of Clopper and Pearson. *Worst* is the largest
statistic over its critical value (of the screen as normal deviates of p): 1 and more flags, and fresh runs of
both sides decide."""
FRESH_HEAD = ("machine", "workloads", "builds", "runs", "no verdict", "flagged", "failed", "at most", "worst")
FORKED = "torch"  # what takes seconds to import
VERDICTS = frozenset({Reason.PASS, Reason.REGRESSED, Reason.IMPROVED, Reason.STRUCTURE_CHANGED})
DRAWN_HEAD = ("runs of", "workload", "runs", "starts", "flagged", "failed", "worst total", "worst place")


class Fresh(msgspec.Struct, frozen=True, kw_only=True, tag="fresh"):
    """A build whose runs were made for it; `open` are its workloads that came to no verdict.

    With `forked`, launches were forks of an interpreter that had imported the framework.
    """

    machine_key: str
    started: str
    commit: str | None
    workloads: list[str]
    runs: int
    flagged: list[str]
    failed: list[str]
    open: list[str] = []
    worst: float
    forked: bool = False


class Drawn(msgspec.Struct, frozen=True, kw_only=True, tag="drawn"):
    """Builds drawn from stored runs, recorded or kept as baselines, of one kind of machine."""

    recordings: list[str]
    found: Calibration


def gate(arguments: list[str]) -> BuildVerdict:
    """One build through the command itself; a code that is no verdict ends the script with it."""
    command = [sys.executable, "-m", "ai_prof", "gate", "--record", "--against", "HEAD", "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    try:
        return msgspec.json.decode(done.stdout, type=BuildVerdict)
    except msgspec.DecodeError:
        sys.exit(done.returncode or 70)


def worst(verdict: BuildVerdict) -> float:
    """The largest statistic of the screen over its critical value; 0 where none points to worse."""
    p = [
        cell.p_adjusted
        for workload in verdict.workloads
        for cell in workload.cells
        if cell.evidence is Evidence.SCREEN and cell.p_adjusted is not None and METRICS[cell.metric].alone
    ]
    return max(0.0, float(special.ndtri(min(p)) / special.ndtri(screen.ALPHA))) if p else 0.0


def row_of(verdict: BuildVerdict, *, forked: bool) -> Fresh:
    """What is kept of a build."""
    compared = [each for each in verdict.workloads if each.reason is not Reason.SKIPPED]
    return Fresh(
        machine_key=verdict.machine_key,
        started=verdict.started,
        commit=verdict.commit,
        workloads=sorted(each.workload for each in compared),
        runs=sum(len(w.candidate_runs) + len(w.confirm_base) + len(w.confirm_head) for w in compared),
        flagged=[each.workload for each in compared if each.confirm_head],
        failed=[each.workload for each in compared if each.reason is Reason.REGRESSED],
        open=[each.workload for each in compared if each.reason not in VERDICTS],
        worst=worst(verdict),
        forked=forked,
    )


def bound(failed: int, builds: int) -> float:
    """The upper 95 % bound of a rate."""
    return float(stats.beta.ppf(0.95, failed + 1, builds - failed)) if failed < builds else 1.0


def draw(folders: Sequence[Path], builds: int) -> Drawn:
    """Builds from the identical runs of recordings or baselines, all of their workloads at once."""
    runs: dict[str, list[Run]] = {}
    profiles: dict[str, Profile] = {}
    backends: set[Backend] = set()
    for name, backend, mine, theirs in stored(folders):
        runs.setdefault(name, []).extend(mine)
        profiles |= theirs
        backends.add(backend)
    if len(backends) != 1:
        sys.exit(f"{' '.join(map(str, folders))}: runs of {len(backends)} kinds of device, not of one")
    rules = {workload.name: workload.rules for workload in find(ROOT / "workloads")}
    found = calibrate(runs, backends.pop(), rules=rules, profiles=profiles, draws=builds)
    return Drawn(recordings=[folder.name for folder in folders], found=found)


def stored(folders: Sequence[Path]) -> Iterator[tuple[str, Backend, list[Run], Mapping[str, Profile]]]:
    """Each workload of recordings of record.py, all taken together, and of machines' folders of baselines."""
    recordings = [folder for folder in folders if (folder / "runs.jsonl").exists()]
    for source in campaign.recorded(recordings):
        yield source.name, source.backend, source.runs[""], source.profiles
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            baseline = store.load(folder.parent, folder.name, path.stem)
            if baseline is not None:
                yield path.stem, baseline.backend, baseline.runs, store.load_profiles(path, baseline)


def page(rows: Sequence[Fresh | Drawn]) -> str:
    """The whole page."""
    fresh = [row for row in rows if isinstance(row, Fresh)]
    drawn = {tuple(row.recordings): row for row in rows if isinstance(row, Drawn)}
    groups: dict[tuple[str, str], list[Fresh]] = {}
    for row in fresh:
        machine = row.machine_key + (", launches forked" if row.forked else "")
        groups.setdefault((machine, ", ".join(row.workloads)), []).append(row)
    lines = [[*key, *_counted(mine)] for key, mine in groups.items()]
    parts = [HEAD, "## Fresh builds", "Every build made its own runs, through `ai-prof gate --against HEAD`."]
    parts.append(doc_tables.table(FRESH_HEAD, lines) if lines else "None was made yet.")
    parts += ["## Builds drawn from stored runs", *map(_of_recordings, drawn.values())]
    return "\n\n".join(parts if drawn else [*parts, "None was drawn yet."]) + "\n"


def _counted(rows: Sequence[Fresh]) -> list[str]:
    whole = [row for row in rows if not row.open]
    flagged, failed = sum(bool(row.flagged) for row in whole), sum(bool(row.failed) for row in whole)
    figures = (len(whole), sum(row.runs for row in whole), len(rows) - len(whole), flagged, failed)
    worst_of_all = max((row.worst for row in whole), default=0.0)
    return [*map(str, figures), f"{100 * bound(failed, len(whole)):.1f} %", f"{worst_of_all:.2f}"]


def _of_recordings(row: Drawn) -> str:
    found, name = row.found, " and ".join(row.recordings)
    rows = [
        [name, each.workload, str(each.runs), str(each.sessions)]
        + [f"{hits} of {each.draws}" for hits in (each.flagged, each.failed)]
        + ["" if worst is None else f"{worst:.2f}" for worst in (each.worst_total, each.worst_profile)]
        for each in found.workloads
    ]
    said = (
        f"{found.failed} of {found.draws} builds failed: at most {100 * found.bound:.0f} %, from the "
        f"{found.independent} that have no run in common."
    )
    return f"{said}\n\n{doc_tables.table(DRAWN_HEAD, rows)}"


def load(path: Path) -> list[Fresh | Drawn]:
    """What was measured before."""
    return msgspec.json.Decoder(Fresh | Drawn).decode_lines(path.read_bytes()) if path.exists() else []


def keep(path: Path, row: Fresh | Drawn) -> list[Fresh | Drawn]:
    """Add a row to the raw figures; all of them."""
    rows = [*load(path), row]
    write_file(path, msgspec.json.Encoder().encode_lines(rows))
    return rows


def gate_fresh(options: argparse.Namespace, arguments: list[str]) -> int:
    """Gate, count, and say; the exit code."""
    begun, failed, builds, longest = time.monotonic(), 0, 0, 0.0
    while builds < options.builds and time.monotonic() - begun + longest <= 60 * options.minutes:
        start = time.monotonic()
        row = row_of(gate(arguments), forked=options.forked)
        longest = max(longest, time.monotonic() - start)
        builds, failed = builds + 1, failed + bool(row.failed)
        keep(options.raw, row)
        said = f"build {builds} of {options.builds}: flagged {', '.join(row.flagged) or 'nothing'}"
        said += f"; no verdict on {', '.join(row.open)}" if row.open else ""
        print(said + (f"; FAILED {', '.join(row.failed)}" if row.failed else ""), flush=True)
    if not builds:
        return 0
    print(f"{failed} of {builds} builds without a change failed: at most {100 * bound(failed, builds):.1f} %")
    return int(stats.binomtest(failed, builds, decide.ALPHA, alternative="greater").pvalue < 0.01)


@contextlib.contextmanager
def forks(*, wanted: bool) -> Iterator[list[str]]:
    """What has the gate start workloads as forks of an interpreter that has the framework."""
    if not wanted:
        yield []
        return
    python = shutil.which("python3") or sys.exit("--forked: no python3 on PATH")
    with tempfile.TemporaryDirectory() as folder, parents(Path(folder), python, [FORKED], 1) as (fork,):
        yield ["--python", fork]


def main() -> None:
    """Gate or draw, and write the page."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--builds", type=int)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="0 writes the page alone")
    parser.add_argument("--from", nargs="+", type=Path, dest="folders", metavar="DIR")
    parser.add_argument("--forked", action="store_true", help=f"workloads all import {FORKED}: saves seconds")
    parser.add_argument("--raw", type=Path, default=RAW, help="the file of raw figures to go on with")
    options, arguments = parser.parse_known_args()
    code = 0
    if options.folders:
        row = draw(options.folders, options.builds or 200)
        keep(options.raw, row)
        print(_of_recordings(row))
    else:
        options.builds = options.builds or 20
        with forks(wanted=options.forked) as more:
            code = gate_fresh(options, [*arguments, *more])
    PAGE.write_text(page(load(options.raw)), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
