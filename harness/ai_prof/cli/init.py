"""`ai-prof init`: write what a repository needs to gate itself. It only writes files, and never over one."""

from __future__ import annotations

from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ai_prof.baselines.files import read_file
from ai_prof.errors import UsageError
from ai_prof.runs.checkout import git
from ai_prof.runs.nvml import gpu_count
from ai_prof.say import say
from ai_prof.trace.writers.atomic import atomic_file

if TYPE_CHECKING:
    import argparse

EXAMPLES = {"cuda": ("main.py", "workload.toml"), "opencl": ("main.py", "pocl_cpu.py", "workload.toml")}
WORKFLOWS = ("baseline-refresh.yml", "comment.yml", "profile.yml")
# Where one of these is there already, what it lacks is printed.
PRINTED = ("pyproject.toml", "noxfile.py")

# Where a file needs a person: what stands in that line, and what to do about it.
_HINTS = {
    "noxfile.py": (
        "file://",
        "AI_PROF names a path of this machine; others need an address, as git+https://HOST/ai-prof@COMMIT",
    ),
    "pyproject.toml": (
        "build = ",
        "`build` builds nothing; name what does once a workload uses what is built or installed from here",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "opencl"),
        default="auto",
        help="auto: cuda where there is a GPU, else opencl (default)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the files, say what was written and what was kept."""
    device = args.device if args.device != "auto" else "cuda" if gpu_count() else "opencl"
    wanted = requirement(device)
    said, made = [], contents(device, wanted)
    for name, text in made.items():
        place = Path.cwd() / name
        if place.exists() or place.is_symlink():
            say(f"kept {name}, which is there already")
            if name in PRINTED and "ai-prof" not in existing(place):
                print(f"# add this to {name}:\n{text}")
            continue
        write(place, text)
        print(f"wrote {name}")
        said += hints(name, text)
    for hint in said:
        say(hint)
    begin = "" if git(Path.cwd(), "rev-parse", "--git-dir") else "git init && "
    ours = " ".join(dict.fromkeys(name.partition("/")[0] for name in made))  # a virtual environment isn't
    print(f'next: {begin}git add {ours} && git commit -m "Gate this repository"')
    print("then: pip install nox; nox -s profile, and nox -s profile -- --regress tiny to see it fail")
    return 0


def hints(name: str, text: str) -> list[str]:
    """What a file that was written still needs from a person."""
    if name == ".github/workflows/profile.yml":
        return [f"{name} waits for a self-hosted runner with the labels linux and gpu"]
    mark, hint = _HINTS.get(name, ("", ""))
    numbered = enumerate(text.splitlines(), 1)
    return [f"{name}, line {number}: {hint}" for number, line in numbered if mark and mark in line][:1]


def existing(place: Path) -> str:
    """What stands in a file of the repository; nothing where it cannot be read."""
    try:
        return read_file(place).decode(errors="replace")
    except OSError:
        return ""


def contents(device: str, wanted: str) -> dict[str, str]:
    """Every file by its path in the repository."""
    starter = files("ai_prof") / "starter"

    def text(name: str) -> str:
        return starter.joinpath(*f"{name}.in".split("/")).read_text(encoding="utf-8")

    example = {f"workloads/example/{name}": text(f"{device}/{name}") for name in EXAMPLES[device]}
    flows = {f".github/workflows/{name}": text(f"workflows/{name}") for name in WORKFLOWS}
    noxfile = text("noxfile.py").replace("@AI_PROF@", wanted)
    return {**example, "pyproject.toml": text("pyproject.toml"), "noxfile.py": noxfile, **flows}


def write(place: Path, text: str) -> None:
    """Write a new file with the folders that it needs."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {place}: {error.strerror}") from error
    with atomic_file(place) as file:
        file.write(text.encode())


def requirement(device: str) -> str:
    """What pip installs this very ai-prof from: PEP 610's record of its source, else its release."""
    found = distribution("ai-prof")
    name = "ai-prof[opencl]" if device == "opencl" else "ai-prof"
    record = found.read_text("direct_url.json")
    if record is None:
        return f"{name}=={found.version}"
    return f"{name} @ {location(msgspec.json.decode(record))}"


def location(source: dict[str, Any]) -> str:
    """The URL that pip takes for a direct reference of PEP 610."""
    url = str(source["url"])
    if "vcs_info" in source:
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    return f"{url}#subdirectory={source['subdirectory']}" if source.get("subdirectory") else url
