"""docs/export.md names every table and column that an export has, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from ai_prof import cli
from ai_prof.trace.model import CallKind, CopyKind, SyncKind

HERE = Path(__file__).parent
TEXT = (HERE.parent / "docs" / "export.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (.*) \|$", TEXT, re.MULTILINE)


def test_every_table_and_column_is_there_in_order(tmp_path):
    capture = HERE / "captures" / "h200_torch_train.aiprof"
    target = tmp_path / "tables"
    assert cli.main(["export", "--input", str(capture), "--format", "csv", "--output", str(target)]) == 0
    written = {path.stem: path.read_text().splitlines()[0].split(",") for path in target.iterdir()}
    assert {table: re.findall(r"`(\w+)`", columns) for table, columns in ROWS} == written


def test_every_kind_is_there():
    told = dict(ROWS)
    for table, kinds in (("memory", CopyKind), ("syncs", SyncKind), ("calls", CallKind)):
        (listed,) = re.findall(r"`kind` \(([^)]*)\)", told[table])
        assert sorted(listed.split(", ")) == sorted(kind.name.lower() for kind in kinds)
