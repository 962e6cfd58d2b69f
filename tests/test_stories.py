"""docs/stories.md, told again: what is slow, what the advice is, and that following it is confirmed."""

from __future__ import annotations

import json
import lzma
import re
import sys
from pathlib import Path

import aiprof_file as af
import pytest

from ai_prof.cli import main
from ai_prof.collect.autostart import library_path

TESTS = Path(__file__).parent
LAYERS = 100  # an iteration's kernels
needs_opencl = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


class Tool:
    """The commands that a user types, each with what it says."""

    def __init__(self, capsys, folder):
        self.capsys, self.folder = capsys, folder

    def __call__(self, *arguments):
        self.capsys.readouterr()
        assert main([str(each) for each in arguments]) == 0
        return self.capsys.readouterr().out

    def run(self, name, program, *arguments):
        self(
            "run",
            "--output",
            self.folder / name,
            "--",
            sys.executable,
            TESTS / "stories" / program,
            *arguments,
        )
        return self.folder / name

    def device(self, capture):
        return json.loads(self("summary", "--input", capture, "--json"))["devices"][0]

    def findings(self, capture):
        found = json.loads(self("summary", "--input", capture, "--json"))["findings"]
        return [each for each in found if each["id"] != "short-capture"]

    def diff(self, before, after):
        return json.loads(self("diff", before, after, "--json"))


@pytest.fixture
def tool(capsys, tmp_path):
    return Tool(capsys, tmp_path)


def named(rows):
    return {row["name"]: row for row in rows}


def save(tool, name, made):
    (tool.folder / name).mkdir()
    return made.write(tool.folder / name).parent


def step(made, device_work):
    """A training step: a batch comes, the device works, a value is read back; twenty of them."""
    for _ in range(20):
        made.copy(af.HTOD, 266_000)
        made.synchronize()
        made.LAUNCH_NS = 14_870  # what an operator of an eager framework takes
        device_work(made)
        made.LAUNCH_NS = af.Program.LAUNCH_NS
        made.synchronize()
    return made


def eager(made):
    for i in range(LAYERS):
        made.launch(f"k{i % 8}", 8_000)


def as_a_graph(made):
    made.graph_launch([f"k{i % 8}" for i in range(LAYERS)], 8_000)


def fused(made):
    for _ in range(LAYERS // 8):
        made.launch("fused", 50_000)


@pytest.fixture
def fragmented(tool):
    return save(tool, "eager", step(af.Program(), eager))


def test_kernels_of_8_us_and_a_gap_of_40_percent_call_for_graphs_or_fusion(tool, fragmented):
    device = tool.device(fragmented)
    assert device["kernel_busy"] == pytest.approx(0.45, abs=0.005)
    assert device["gap"] == pytest.approx(0.40, abs=0.005)
    assert device["kernel_mean_us"] == pytest.approx(8.0)
    first, *others = tool.findings(fragmented)
    assert (first["id"], first["severity"]) == ("gap-launch", "critical")
    assert "torch.compile or CUDA graphs" in first["actions"][0]
    assert "Fuse" in first["actions"][1]
    assert "small-kernels" in {each["id"] for each in others}
    said = tool("summary", "--input", fragmented)
    assert "1. The host cannot launch work fast enough (critical" in said
    assert "For a scheduler: launch-bound." in said


@pytest.mark.parametrize("better", [as_a_graph, fused], ids=["graphs", "fusion"])
def test_following_that_advice_is_confirmed_as_real_acceleration(tool, fragmented, better):
    after = save(tool, "after", step(af.Program(), better))
    found = tool.diff(fragmented, after)
    assert found["kind"] == "accelerated"
    figures = named(found["figures"])
    assert figures["kernel_busy"]["change"] > 0.1
    assert figures["iteration_ms"]["relative"] < -0.25
    assert named(found["parts"])["launch"]["change_ms"] == pytest.approx(-0.675, abs=0.03)
    assert tool("diff", fragmented, after).startswith("Real acceleration: iteration latency")


@pytest.fixture
def on_an_h200(tool):
    """Captures of an H200 that the tests hold, each in a folder of its own."""
    held = {
        "eager": (TESTS / "captures" / "h200_torch_decode.aiprof").read_bytes(),
        **{
            name: lzma.decompress((TESTS / "captures" / "h200" / f"{packed}.aiprof.xz").read_bytes())
            for name, packed in {"graph": "graph_decode", "none": "loader_0", "four": "loader_4"}.items()
        },
    }
    for name, data in held.items():
        (tool.folder / name).mkdir()
        (tool.folder / name / "h-1-0.aiprof").write_bytes(data)
    return {name: tool.folder / name for name in held}


def test_a_graph_makes_a_decoder_on_an_h200_truly_faster(tool, on_an_h200):
    first = tool.findings(on_an_h200["eager"])[0]
    assert (first["id"], first["severity"]) == ("gap-launch", "critical")
    assert "torch.compile or CUDA graphs" in first["actions"][0]
    found = tool.diff(on_an_h200["eager"], on_an_h200["graph"])
    assert found["kind"] == "accelerated"
    figures, parts = named(found["figures"]), named(found["parts"])
    assert figures["kernel_time_ms"]["relative"] == pytest.approx(0, abs=0.02)  # the same work
    # All that an iteration lost is the wait for launches.
    assert parts["launch"]["change_ms"] == pytest.approx(figures["iteration_ms"]["change"], rel=0.01)


def test_more_loader_workers_shrink_the_gap_on_an_h200(tool, on_an_h200):
    """The same training, its DataLoader with no worker and with four."""
    starved = tool.findings(on_an_h200["none"])[0]
    assert (starved["id"], starved["severity"]) == ("gap-data", "critical")
    assert starved["evidence"]["placement"]["start"] > 0.95
    # The program has no worker, and twice none is none.
    assert "half as many as there are cores where there is none (num_workers=0): if" in starved["actions"][0]
    assert "gap-data" not in {each["id"] for each in tool.findings(on_an_h200["four"])}
    found = tool.diff(on_an_h200["none"], on_an_h200["four"])
    assert found["kind"] == "accelerated"
    data = named(found["parts"])["data"]
    assert data["after_ms"] < 0.05 * data["before_ms"]
    # All that an iteration lost is that gap.
    assert data["change_ms"] == pytest.approx(named(found["figures"])["iteration_ms"]["change"], rel=0.01)


def test_the_page_quotes_what_the_tool_says(tool, on_an_h200):
    """Every line of a block that is output is printed, for these captures, by the command it stands under."""
    said = [tool("summary", "--input", on_an_h200[name]) for name in ("eager", "none")]
    said += [tool("diff", on_an_h200[a], on_an_h200[b]) for a, b in (("eager", "graph"), ("none", "four"))]
    printed = {line for text in said for line in text.splitlines()}
    blocks = re.findall(
        r"```text\n(.*?)```", (TESTS.parent / "docs" / "stories.md").read_text("utf-8"), re.DOTALL
    )
    assert len(blocks) == 4
    assert [line for block in blocks for line in block.splitlines() if line not in printed] == []


@pytest.fixture
def pocl(monkeypatch):
    pytest.importorskip("pyopencl")
    monkeypatch.setenv("PYOPENCL_CTX", "portable")
    monkeypatch.setenv("POCL_MAX_PTHREAD_COUNT", "1")


@needs_opencl
@pytest.mark.usefixtures("pocl")
def test_fusing_small_kernels_makes_a_real_program_faster(tool):
    before, after = (tool.run(name, "elementwise.py", *flags) for name, *flags in (("a",), ("b", "--fused")))
    advice = {each["id"]: each["actions"] for each in tool.findings(before)}
    told = {"gap-launch", "small-kernels"} & advice.keys()  # both, where no other program has the cores
    assert told
    assert all("merge those that run one after another" in advice[each][0] for each in told)
    found = tool.diff(before, after)
    assert named(found["structure"])["kernels"]["before"] == 8 * named(found["structure"])["kernels"]["after"]
    assert found["kind"] in {"accelerated", "less-work"}  # how busy a core is that others use too says little
    assert named(found["figures"])["iteration_ms"]["relative"] < 0


@needs_opencl
@pytest.mark.usefixtures("pocl")
def test_the_gap_at_the_start_shrinks_as_workers_grow(tool):
    """A batch takes its loader 40 ms: one worker has the device wait for most of that, eight for little."""
    one, two, eight = (tool.run(str(n), "loading.py", "--workers", str(n)) for n in (1, 2, 8))
    starved = tool.findings(one)[0]
    assert (starved["id"], starved["severity"]) == ("gap-data", "critical")
    assert starved["evidence"]["placement"]["start"] > 0.9
    waits = [named(tool.diff(one, other)["parts"])["data"]["after_ms"] for other in (one, two, eight)]
    assert waits[0] > waits[1] > waits[2]
    assert 0.6 * waits[0] > waits[2]
    assert "What changed most of the mean iteration: idle: waiting for data -" in tool("diff", one, eight)
