"""What a merger writes down before integration moves, and what that is good for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.journeys.crews import Crew, started


def _approved(crew: Crew) -> None:
    crew.liza("submit", cwd=crew.work_by_hand("task-1"))
    crew.liza("verdict", "approve", "fine", "--task", "task-1")


@pytest.mark.parametrize("point", ["merge.begun", "merge.advanced"])
@pytest.mark.campaign
def test_a_merger_killed_when_integration_had_moved_has_merged_once(tmp_path: Path, point: str) -> None:
    with started(tmp_path) as crew:
        _approved(crew)
        assert crew.run("merge", LIZA_FAULT=point).returncode == -signal.SIGKILL
        crew.liza("merge", "task-1")
        tip = crew.git("rev-parse", "integration")
        assert (crew.status("task-1"), crew.task("task-1").merge_commit) == ("MERGED", tip)
        assert crew.git("rev-list", "--merges", "--count", "integration") == "1"
