"""The driver of all that needs a GPU: what a call that is cut, or too short, leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).with_name("gpu")))
import check
import in_repository

from ai_prof.runs.workloads import find

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups")
WRITES = "import pathlib; pathlib.Path(r'{out}/a.txt').touch(); pathlib.Path(r'{out}/b.aiprof').touch()"
GOOD = check.Part(
    "some-good", 0, 60, ("-c", f"{WRITES}; print('x'); print('figure 7'); print('y')"), "^figure"
)
BAD = check.Part("some-bad", 0, 60, ("-c", "raise SystemExit('what went wrong')"), "^figure")
ENDLESS = check.Part("endless", 0, 1, ("-c", "import time; time.sleep(600)"), "^figure")


@pytest.fixture
def gpus():
    return ["GPU-a"]


@pytest.fixture
def call(monkeypatch, tmp_path, capsys, gpus):
    """Calls the driver with these parts; its exit code, its results by part, and what it printed."""
    monkeypatch.setattr(check, "install", lambda: None)
    monkeypatch.setattr(check, "look", lambda: gpus)
    monkeypatch.setenv("PATH", "/usr/bin")

    def made(parts, *words):
        monkeypatch.setattr(check, "PARTS", parts)
        monkeypatch.setattr(sys, "argv", ["check.py", "--out", str(tmp_path / "out"), *words])
        code = check.main()
        lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
        return code, {one["part"]: one for one in map(json.loads, lines)}, capsys.readouterr().out

    return made


def test_each_part_leaves_its_result_and_its_log(call, tmp_path):
    code, results, printed = call((GOOD, ENDLESS, BAD))
    assert code == 1
    assert {name: one["code"] for name, one in results.items()} == {
        "some-good": 0,
        "endless": 124,
        "some-bad": 1,
    }
    assert results["some-good"]["told"] == ["figure 7"]
    assert results["some-bad"]["told"] == ["what went wrong"]
    assert "figure 7" in printed
    with tarfile.open(tmp_path / "out" / "logs.tar.gz") as archive:
        names = archive.getnames()
    assert {"logs/some-good/log.txt", "logs/some-good/a.txt", "logs/endless/log.txt"} <= set(names)
    assert not any(name.endswith(".aiprof") for name in names)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.jsonl", "logs.tar.gz"}


def test_what_ended_well_is_not_done_again(call, tmp_path):
    earlier = tmp_path / "earlier.jsonl"
    call((GOOD, BAD))
    earlier.write_text((tmp_path / "out" / "results.jsonl").read_text() + '{"part": "cut')
    code, results, printed = call((GOOD, BAD), "--done", str(earlier), "some")
    assert code == 1
    assert set(results) == {"some-good", "some-bad"}
    assert "some-bad: at most" in printed
    assert "some-good: at most" not in printed
    assert "figure 7" in printed
    assert call((GOOD, BAD), "--done", str(earlier), "some-good")[0] == 0


def test_a_part_that_does_not_fit_is_not_begun(call):
    code, results, printed = call((GOOD,), "--minutes", "0")
    assert (code, results) == (1, {})
    assert "not begun" in printed


@pytest.mark.parametrize("gpus", [["GPU-a", "GPU-b"]])
def test_of_several_gpus_each_has_its_lane(call, tmp_path):
    """Two parts that wait for each other end; what takes both GPUs came before."""
    meet = "import os, pathlib, time; print('figure', os.environ['CUDA_VISIBLE_DEVICES'])\n"
    meet += f"here = pathlib.Path({str(tmp_path)!r}); (here / '{{}}').touch()\n"
    meet += "while not (here / '{}').exists(): time.sleep(0.01)"
    parts = [
        check.Part(name, 0, 60, ("-c", meet.format(name, other)), "^figure") for name, other in ("mn", "nm")
    ]
    both = check.Part("both", 0, 60, ("-c", meet.format("both", "both")), "^figure", alone=True)
    code, results, printed = call((*parts, both))
    assert code == 0
    assert results["both"]["told"] == ["figure GPU-a,GPU-b"]
    assert {results[name]["told"][0] for name in "mn"} == {"figure GPU-a", "figure GPU-b"}
    assert printed.index("both: at most") < printed.index("m: at most")
    with tarfile.open(tmp_path / "out" / "logs.tar.gz") as archive:
        assert {f"logs/{name}/log.txt" for name in ("m", "n", "both")} <= set(archive.getnames())


def test_a_part_that_is_none_is_refused(call):
    with pytest.raises(SystemExit, match="no part bed; there are: some-good, some-bad"):
        call((GOOD, BAD), "bed")


def test_the_parts_name_what_is_there():
    workloads = {workload.name: workload for workload in find(ROOT / "workloads")}
    for part in check.PARTS:
        files = [word for word in part.words if word.startswith("tests/")]
        assert files
        assert all((ROOT / file).is_file() for file in files)
        if part.name.startswith("gate-faults-"):
            assert part.words[-1] in workloads[part.words[-2]].faults


def test_the_recorder_asks_for_faults_that_its_workloads_know():
    plan = msgspec.toml.decode((ROOT / "tests" / "bench" / "record.toml").read_bytes())
    workloads = {workload.name: workload for workload in find(ROOT / "workloads")}
    for wanted in plan["runs"]:
        for name in wanted["workloads"]:
            assert all(workloads[name].regress(fault) for fault in wanted.get("faults", ()))


def test_a_script_runs_in_a_repository_made_of_this_tree(tmp_path):
    """What is asked of git there is answered, and what the script keeps comes back."""
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, subprocess, sys\n"
        "pathlib.Path('tests/bench/figures/kept.txt').write_text('7')\n"
        "sys.exit(subprocess.run(['git', 'rev-parse', 'HEAD']).returncode or 5)\n"
    )
    places = [str(tmp_path / name) for name in ("repository", "figures")]
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "in_repository.py"), *places, str(script)]
    for _ in range(2):
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 5
    assert (tmp_path / "figures" / "kept.txt").read_text() == "7"
    assert (tmp_path / "repository" / "workloads" / "torch_train" / "main.py").is_file()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this tree has no history")
def test_a_clone_of_head_is_that_repository_where_it_was_brought(tmp_path, monkeypatch):
    head = tmp_path / "head.git"
    bare = ["git", "clone", "-q", "--bare", "--depth", "1", f"file://{ROOT}", str(head)]
    subprocess.run(bare, check=True)
    monkeypatch.setattr(in_repository, "HEAD", head)
    in_repository.make(tmp_path / "repository")
    commits = [
        subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=place)
        for place in (ROOT, tmp_path / "repository")
    ]
    assert commits[0] == commits[1]


def test_every_workload_for_cuda_has_its_faults_tried():
    """But ddp_train, which needs a GPU for each rank."""
    halves = [name for names in check.FAULTS_OF.values() for name in names]
    cuda = [each.name for each in find(ROOT / "workloads") if each.device == "cuda"]
    assert sorted(halves) == sorted(set(cuda) - {"ddp_train"})


def test_what_ai_prof_requires_and_is_not_there_is_named(monkeypatch):
    assert check.lacking() == []
    more = ["not-to-be-had>=2", "tomli; python_version < '3'", "numpy"]
    monkeypatch.setattr(check.importlib.metadata, "requires", lambda _: more)
    assert check.lacking() == ["not-to-be-had"]
