"""What mkdocs.yml can't say: pages that stand elsewhere or are made, and pages that may not be there."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.cli import VERBS, make_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "architecture.md": "ARCHITECTURE.md",
    "format.md": "capture/FORMAT.md",
    "security.md": "SECURITY.md",
}
# Written by tests/bench/launch_overhead.py on a machine with a GPU: in a checkout they are there or not.
MEASURED = {"overhead.md": "What a capture costs", "kinds.md": "What each kind of record costs"}


def on_config(config: MkDocsConfig) -> None:
    """List the pages that are there of those that are measured."""
    there = [{title: page} for page, title in MEASURED.items() if Path(config["docs_dir"], page).exists()]
    (evidence,) = (entry["Evidence"] for entry in config["nav"] if "Evidence" in entry)
    evidence += there


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - the reference alone needs no mkdocs

    files.append(File.generated(config, "commands.md", content=commands()))
    for page, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=re.sub(r"\]\(docs/", "](", text)))
    return files


def commands() -> str:
    """The reference of every command, as the parser itself says it."""
    os.environ["COLUMNS"] = "100"  # what argparse wraps to
    lines = ["# Commands", "", "`--json` gives figures to programs; progress goes to stderr.", ""]
    for verb in VERBS:
        (parser,) = (p for name, p in subparsers(make_parser(verb)) if name == verb)
        lines += [f"## ai-prof {verb}", "", "```text", parser.format_help().rstrip(), "```", ""]
        for name, sub in subparsers(parser):
            lines += [f"### ai-prof {verb} {name}", "", "```text", sub.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands one level below a parser."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no door to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()
