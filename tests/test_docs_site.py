"""The site: its reference is the parser's own, its pages are all listed and name what exists."""

from __future__ import annotations

import copy
import importlib.util
import re
from pathlib import Path

import pytest

from ai_prof.cli import VERBS, make_parser

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
SPEC = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)


def listed(nav):
    for entry in nav:
        (where,) = entry.values()
        yield from listed(where) if isinstance(where, list) else [where]


@pytest.mark.parametrize("measured", [set(), {"overhead.md"}, {"overhead.md", "kinds.md"}])
def test_every_page_is_in_the_navigation(measured, tmp_path):
    written = {path.name for path in (ROOT / "docs").glob("*.md")} - set(hooks.MEASURED) | measured
    for name in written:
        (tmp_path / name).touch()
    config = copy.deepcopy(CONFIG) | {"docs_dir": str(tmp_path)}
    hooks.on_config(config)
    assert set(listed(config["nav"])) == written | {"commands.md", *hooks.ELSEWHERE}


def test_the_reference_has_every_option_of_every_command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = hooks.commands()
    sections = dict(re.findall(r"^##+ ai-prof (.*)\n(?s:\n```text\n(.*?)\n```)", text, re.MULTILINE))
    assert {name for name in sections if " " not in name} == set(VERBS)
    for verb in VERBS:
        for name, parser in hooks.subparsers(make_parser(verb)):
            if name != verb:
                continue
            for action in parser._actions:
                for option in action.option_strings:
                    assert option in sections[verb]
            for below, sub in hooks.subparsers(parser):
                for option in (o for action in sub._actions for o in action.option_strings):
                    assert option in sections[f"{verb} {below}"]


def test_every_argument_is_explained():
    for verb in VERBS:
        (parser,) = (p for name, p in hooks.subparsers(make_parser(verb)) if name == verb)
        below = list(hooks.subparsers(parser))
        for name, each in ((verb, parser), *((f"{verb} {name}", sub) for name, sub in below)):
            assert each.description, name
            unexplained = [a.dest for a in each._actions if not a.help and not (below and a.choices)]
            assert unexplained == [], name


def named(page):
    """The verbs of ours that a page has as commands."""
    return set(re.findall(r"(?:`|^|\$\()ai-prof ([a-z]+)\b", page.read_text(), re.MULTILINE))


def test_the_readme_names_every_command():
    assert named(ROOT / "README.md") - {"says"} == set(VERBS)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_a_page_names_only_commands_that_exist(page):
    for verb in named(page):
        assert verb in {*VERBS, "says"}, f"{page.name} names `ai-prof {verb}`"
