"""How the processes of pytest-xdist share the tests."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

# Their captures are on this host's one device, where each waits for the one before it.
MEASURING = {
    *("test_gate_command", "test_init", "test_pytest_plugin", "test_runs_launch", "test_shards"),
    *("test_whole_job", "test_workflow_steps"),
}


class OneMeasures(LoadScopeScheduling):
    """One process runs all tests that measure, and begins with them; others are shared one by one."""

    def _split_scope(self, nodeid: str) -> str:
        """What a test is one with. The largest such set comes first."""
        file = PurePosixPath(nodeid.partition("::")[0]).stem
        return "measuring" if file in MEASURING else nodeid
