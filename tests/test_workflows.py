"""The steps of the GitHub workflows that need no GPU runner, run as a runner would."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from workflow_runner import FLOWS, ROOT, Runner, step, steps, yaml

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_every_action_is_pinned_and_no_job_has_a_right_that_it_does_not_name() -> None:
    for name, flow in FLOWS.items():
        assert flow["permissions"] == {}, name
        for job in flow["jobs"].values():
            assert "permissions" in job, name
            for each in job["steps"]:
                reference = each.get("uses", "@" + "0" * 40).partition("@")[2]
                assert len(reference) == 40, (name, each)
                assert set(reference) <= set("0123456789abcdef"), (name, each)


def test_no_step_holds_an_expression_in_its_script() -> None:
    for script in (each["run"] for each in steps().values()):
        assert "${{" not in script, script


def test_the_gpu_runner_sees_no_fork_and_holds_no_right_to_write() -> None:
    for flow in FLOWS.values():
        for job in flow["jobs"].values():
            if "self-hosted" in job["runs-on"]:
                assert "fork" not in job["runs-on"]
                assert job["permissions"] == {"contents": "read"}
                assert job["environment"] == "gpu"
    gate = FLOWS["profile"]["jobs"]["gate"]["if"]
    assert "head.repo.full_name == github.repository" in gate


def test_a_comment_that_cannot_be_posted_decides_no_build() -> None:
    """A run of its own posts it once the build's has ended; no job of the build may, or tries."""
    begins = FLOWS["comment"].get("on") or FLOWS["comment"][True]  # YAML 1.1 reads a bare `on` as true
    assert begins == {"workflow_run": {"workflows": ["profile"], "types": ["completed"]}}
    for job in FLOWS["profile"]["jobs"].values():
        assert "pull-requests" not in job["permissions"]
        assert not any("/comments" in each.get("run", "") for each in job["steps"])


COMMENT = ("comment", "comment", "Comment")
REPORT = """# 1 of 2 workloads regressed #7

| workload | kernel |
|---|---|
| <img src=x onerror=alert(1)> | @everyone [click](https://evil.example/) |
| ![](http://evil.example/p.png) | this & www.evil.example |
````
![x][r] GH-12

[r]: https://evil.example/p.png
"""


def comment(
    runner: Runner, report: str | None, pulls: list[dict[str, Any]], comments: list[dict[str, Any]]
) -> None:
    if report is not None:
        folder = runner.folder / "temp" / "report" / "run"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comment.txt").write_text(report)
    pages = [comments[i : i + 100] for i in range(0, max(1, len(comments)), 100)]
    answers = {"repos/o/r/commits/abc/pulls": pulls, "repos/o/r/issues/5/comments?per_page=100": pages}
    runner.answers.write_text(json.dumps(answers))
    done = runner.run(step(*COMMENT), REPOSITORY="o/r", HEAD_SHA="abc", RUN_URL="https://host/run")
    assert done.returncode == 0, done.stderr


def pull(number: int = 5, sha: str = "abc", state: str = "open") -> dict[str, Any]:
    return {"number": number, "state": state, "head": {"sha": sha}}


def test_a_comment_shows_the_report_and_lets_none_of_it_act(runner: Runner) -> None:
    comment(runner, REPORT, [pull()], [])
    arguments, body = runner.asked()[-1]
    assert arguments[:4] == ["api", "repos/o/r/issues/5/comments", "--method", "POST"]
    text = json.loads(body or "")["body"]
    own, _, shown = text.partition("\n")
    assert own == "<!-- ai-prof -->"
    shown, _, link = shown.rpartition("\n\n")
    assert link.startswith("[The run](https://host/run)")
    opening, *lines, closing = shown.splitlines()
    assert (opening, closing) == ("`````text", "`````")  # longer than any in it, so that all of it is text
    assert "\n".join(lines) == REPORT.strip()


def test_an_earlier_comment_of_ours_is_replaced_and_no_one_elses(runner: Runner) -> None:
    bot, body = {"login": "github-actions[bot]"}, "<!-- ai-prof -->\nold"
    others = [{"id": 1, "user": {"login": "eve"}, "body": body}, {"id": 2, "user": bot, "body": "other"}]
    comment(runner, "fine", [pull()], [*others, {"id": 3, "user": bot, "body": body}])
    assert runner.asked()[-1][0][:4] == ["api", "repos/o/r/issues/comments/3", "--method", "PATCH"]


def test_an_earlier_comment_is_found_behind_hundreds(runner: Runner) -> None:
    every = [{"id": i, "user": {"login": "eve"}, "body": "a word"} for i in range(250)]
    every[230] = {"id": 230, "user": {"login": "github-actions[bot]"}, "body": "<!-- ai-prof -->\nold"}
    comment(runner, "fine", [pull()], every)
    assert ["--paginate", "--slurp"] in [arguments[-2:] for arguments, _ in runner.asked()]
    assert runner.asked()[-1][0][:4] == ["api", "repos/o/r/issues/comments/230", "--method", "PATCH"]


def test_reports_lie_outside_of_what_a_change_controls() -> None:
    uploads = [
        each["with"]["path"]
        for flow in (FLOWS["profile"], FLOWS["ci"])
        for job in flow["jobs"].values()
        for each in job["steps"]
        if "upload-artifact" in each.get("uses", "")
    ]
    assert set(uploads) == {"${{ runner.temp }}/reports/"}


@pytest.mark.parametrize(
    ("report", "pulls"),
    [(None, [pull()]), ("fine", []), ("fine", [pull(sha="def")]), ("fine", [pull(state="closed")])],
)
def test_without_a_report_or_an_open_pull_request_nothing_is_said(
    runner: Runner, report: str | None, pulls: list[dict[str, Any]]
) -> None:
    comment(runner, report, pulls, [])
    assert [arguments[1] for arguments, _ in runner.asked()] == ["repos/o/r/commits/abc/pulls"]


def test_a_huge_report_is_cut(runner: Runner) -> None:
    comment(runner, "a line of @ signs @@@@@@\n" * 20_000, [pull()], [])
    text = json.loads(runner.asked()[-1][1] or "")["body"]
    assert len(text) < 65_000
    assert "The rest is in the run's artifact" in text


def test_baselines_come_from_the_target_branch_and_a_change_of_them_is_told(runner: Runner) -> None:
    runner.git("init", "-q", "-b", "main")
    (runner.workspace / "baselines").mkdir()
    (runner.workspace / "baselines" / "w.json").write_text("old")
    runner.git("add", ".")
    runner.git("commit", "-qm", "one")
    base = runner.git("rev-parse", "HEAD").strip()
    taken = runner.folder / "temp" / "target" / "baselines"
    assert (
        runner.run(step("profile", "gate", "Take baselines from the target branch"), BASE=base).returncode
        == 0
    )
    assert not runner.summary.exists()
    (runner.workspace / "baselines" / "w.json").write_text("slack")
    runner.git("commit", "-qam", "two")
    done = runner.run(step("profile", "gate", "Take baselines from the target branch"), BASE=base)
    assert done.returncode == 0, done.stderr
    assert (taken / "w.json").read_text() == "old"
    assert "    baselines/w.json\n" in runner.summary.read_text()


def test_a_target_without_baselines_gives_none(runner: Runner) -> None:
    runner.git("init", "-q", "-b", "main")
    runner.git("commit", "-qm", "one", "--allow-empty")
    done = runner.run(step("profile", "gate", "Take baselines from the target branch"), BASE="HEAD")
    assert done.returncode == 0, done.stderr
    assert list((runner.folder / "temp" / "target" / "baselines").iterdir()) == []


def test_the_summary_is_the_report(runner: Runner) -> None:
    summary = step("profile", "verdict", "Summary")
    assert runner.run(summary).returncode == 0
    assert not runner.summary.exists()
    for place, text in ((runner.folder / "temp", "# verdict\n"), (runner.workspace, "of the change itself")):
        (place / "reports" / "run").mkdir(parents=True)
        (place / "reports" / "run" / "report.md").write_text(text)
    assert runner.run(summary).returncode == 0
    assert runner.summary.read_text() == "# verdict\n"


def test_a_refresh_opens_a_pull_request_with_what_moved(runner: Runner) -> None:
    remote = runner.folder / "remote"
    runner.git("init", "-q", "--bare", "-b", "main", str(remote), folder=runner.folder)
    runner.git("init", "-q", "-b", "main")
    runner.git("commit", "-qm", "one", "--allow-empty")
    runner.git("remote", "add", "origin", str(remote))
    (runner.workspace / "baselines" / "key").mkdir(parents=True)
    (runner.workspace / "baselines" / "key" / "w.json").write_text("new")
    (runner.workspace / "baselines" / "moved.txt").write_text("iteration 3 -> 4\n```\n@eve\n")
    done = runner.run(
        step("baseline-refresh", "propose", "Open a pull request with the values that moved"),
        REASON="$(touch pwned) `touch pwned` new driver",
        ACTOR="ann",
        BASE="main",
        BRANCH="baseline-refresh-1",
    )
    assert done.returncode == 0, done.stderr
    assert not (runner.workspace / "pwned").exists()
    tree = runner.git("ls-tree", "-r", "--name-only", "baseline-refresh-1", folder=remote)
    assert tree.split() == ["baselines/key/w.json"]
    assert "$(touch pwned)" in runner.git("log", "-1", "--format=%b", "baseline-refresh-1", folder=remote)
    arguments, body = runner.asked()[-1]
    assert arguments[:6] == ["pr", "create", "--base", "main", "--head", "baseline-refresh-1"]
    assert body is not None
    assert body.count("```") == 2
    assert "iteration 3 -> 4" in body


@pytest.mark.parametrize(("tag", "code"), [("v0.0.0", 1), (None, 0)])
def test_a_release_is_of_the_version_that_its_tag_names(runner: Runner, tag: str | None, code: int) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (runner.workspace / "pyproject.toml").write_text(text)
    (line,) = (each for each in text.splitlines() if each.startswith("version = "))
    tag = tag or "v" + line.split('"')[1]
    assert runner.run(step("release", "source", "The tag names the version"), TAG=tag).returncode == code


@pytest.mark.parametrize("code", [0, 1, 5])
def test_the_action_ends_as_the_gate_does(runner: Runner, code: int) -> None:
    programs = runner.folder / "temp" / "ai-prof" / "bin"
    programs.mkdir(parents=True)
    program = programs / "ai-prof"
    program.write_text(
        f'#!/bin/sh\necho "$@" > said\nmkdir -p "$3/run"\necho report > "$3/run/report.md"\nexit {code}\n'
    )
    program.chmod(0o755)
    gate = step("action", "composite", "Gate")
    (runner.workspace / "reports" / "zzz").mkdir(parents=True)
    (runner.workspace / "reports" / "zzz" / "report.md").write_text("of the change itself")
    reports = runner.folder / "temp" / "reports"
    assert runner.run(gate, ARGUMENTS="--runs 4  train").returncode == code
    assert (runner.workspace / "said").read_text() == f"gate --report {reports} --runs 4 train\n"
    assert (runner.folder / "output").read_text() == f"exit-code={code}\nreport={reports}\n"
    assert runner.summary.read_text() == "report\n"
    assert runner.run(gate, ARGUMENTS="").returncode == code
    assert (runner.workspace / "said").read_text() == f"gate --report {reports}\n"


def test_the_kubernetes_job_measures_every_shard_and_merges_them(tmp_path: Path) -> None:
    jobs = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/gate-job.yaml").read_text()))
    gate, verdict = (job["spec"]["template"]["spec"]["containers"][0] for job in jobs)
    spec = jobs[0]["spec"]
    (shards,) = (each["value"] for each in gate["env"] if each["name"] == "SHARDS")
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(shards)
    assert [job["spec"]["backoffLimit"] for job in jobs] == [0, 0]
    program = tmp_path / "ai-prof"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    for index in range(int(shards)):
        env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SHARDS": shards}
        env["JOB_COMPLETION_INDEX"] = str(index)
        command = [*gate["command"], *gate["args"]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        wanted = f"gate --device cuda --shard {index + 1}/{shards} --report /evidence/shard-{index + 1}"
        assert done.stdout.splitlines() == ["doctor", wanted]
    assert verdict["command"][:4] == ["ai-prof", "report", "merge", "/evidence"]
