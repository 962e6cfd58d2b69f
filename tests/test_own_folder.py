from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ai_prof.cli.own_folder import make_own_folder
from ai_prof.errors import UsageError


def test_a_new_folder_does_not_make_the_tree_dirty(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    make_own_folder(tmp_path / "a" / "reports", "")
    (tmp_path / "a" / "reports" / "index.html").touch()
    status = ["git", "-C", str(tmp_path), "status", "--porcelain"]
    assert subprocess.run(status, check=True, capture_output=True, text=True).stdout == ""


def test_a_folder_of_the_users_stays_as_it_is(tmp_path):
    make_own_folder(tmp_path, "")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_told_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    for folder, why in ((tmp_path / "file", "it is a file"), (tmp_path / "file" / "in", "Not a directory")):
        with pytest.raises(UsageError, match=f"{why}; name another"):
            make_own_folder(folder, "name another")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_before_it_matters(tmp_path, monkeypatch):
    def on_full_disk(**_):
        return Path("/dev/full").open("wb")

    monkeypatch.setattr("tempfile.TemporaryFile", on_full_disk)
    for folder in (tmp_path, tmp_path / "reports"):
        with pytest.raises(UsageError, match="No space left"):
            make_own_folder(folder, "")
    # Once there is room it is made as a new one, which git ignores.
    assert list(tmp_path.iterdir()) == []
