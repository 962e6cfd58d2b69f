"""Gates this code against itself, again and again: false alarms of the whole gate on this machine.

    python tests/bench/aa.py [--builds 20] [GATE ARGUMENT...]

The first build records a baseline where there is none. Prints what each build flagged and failed, the rate of
false alarms with its upper 95 % bound (Clopper and Pearson), and the smallest p of the screen as a normal
deviate over that of its alpha. Ends with 1 where more builds failed than alpha allows by chance (p < 0.01).
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import msgspec
from scipy import special, stats

from ai_prof.gate import decide, screen
from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import BuildVerdict, Evidence, Reason


def gate(arguments: list[str]) -> BuildVerdict:
    """One build through the command itself; a code that is no verdict ends the script with it."""
    command = [sys.executable, "-m", "ai_prof", "gate", "--record", "--against", "HEAD", "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    try:
        return msgspec.json.decode(done.stdout, type=BuildVerdict)
    except msgspec.DecodeError:
        sys.exit(done.returncode or 70)


def worst(verdict: BuildVerdict) -> float:
    """The screen's largest statistic over its critical value; 0 where fresh runs took the screen's place."""
    p = [
        cell.p_adjusted
        for workload in verdict.workloads
        for cell in workload.cells
        if cell.evidence is Evidence.SCREEN and cell.p_adjusted is not None and METRICS[cell.metric].alone
    ]
    return float(special.ndtri(min(p)) / special.ndtri(screen.ALPHA)) if p else 0.0


def main() -> None:
    """Gate, count, and say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--builds", type=int, default=20)
    options, arguments = parser.parse_known_args()
    failed, largest = 0, 0.0
    for build in range(options.builds):
        verdict = gate(arguments)
        flagged = [each.workload for each in verdict.workloads if each.confirm_head]
        wrong = [each.workload for each in verdict.workloads if each.reason is Reason.REGRESSED]
        failed += bool(wrong)
        largest = max(largest, worst(verdict))
        said = f"build {build + 1} of {options.builds}: flagged {', '.join(flagged) or 'nothing'}"
        print(said + (f"; FAILED {', '.join(wrong)}" if wrong else ""), flush=True)
    builds = options.builds
    bound = float(stats.beta.ppf(0.95, failed + 1, builds - failed)) if failed < builds else 1.0
    print(f"{failed} of {builds} builds without a change failed: at most {100 * bound:.1f} % (95 %)")
    print(f"worst statistic of the screen over its critical value: {largest:.2f}")
    unlikely = stats.binomtest(failed, builds, decide.ALPHA, alternative="greater").pvalue < 0.01
    sys.exit(1 if unlikely else 0)


if __name__ == "__main__":
    main()
