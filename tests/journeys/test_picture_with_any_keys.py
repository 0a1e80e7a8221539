"""Whatever keys a person presses in `liza ui`, no task, no commit and no running session is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from liza.crew.crew import Crew as OpenCrew
from liza.ui.rules.keys import KEYS
from tests.conftest import git
from tests.pictures.example_crew import open_example

pytest.importorskip("textual")

from liza.ui.terminal.picture_app import PictureApp

LEAVING = ("q", ":", "t", "plus", "e")
"""Keys that end the picture, or hand the terminal to a command: a test has none."""
PRESSES = [press for key in KEYS for press in key.presses if press not in LEAVING]
TYPED = ["1", "2", "3", "4", "5", "6", "enter", "escape", "y", "n", "h", "i", "backspace", "down", "up", "tab"]


def facts(crew: OpenCrew) -> tuple[set[str], set[str], set[str]]:
    """The ids of the tasks, the commits of all branches, and the sessions that run."""
    state = crew.board.read()
    commits = set(git(crew.paths.root, "rev-list", "--all", "--", ".").split())
    sessions = {agent.current_task for agent in state.agents.values() if agent.current_task}
    return {task.id for task in state.tasks}, commits, sessions


async def press_keys(crew: OpenCrew, count: int, seed: int) -> None:
    """Press random keys in a picture of the crew, and none faster than the picture takes them."""
    choose = random.Random(seed).choice
    app = PictureApp(crew, is_read_only=False)
    async with app.run_test(size=(80, 24)) as pilot:
        while app.snapshot is None:
            await pilot.pause(0.01)
        for _ in range(count):
            await pilot.press(choose(PRESSES + TYPED))
            if choose((True, False)):
                await pilot.pause(0.06)
        assert app.return_code in (None, 0)


@pytest.mark.parametrize(
    ("count", "seed"), [(100, 1), *(pytest.param(2_500, seed, marks=pytest.mark.campaign) for seed in (2, 3, 4, 5))]
)
def test_random_keys_lose_no_task_no_commit_and_no_session(tmp_path: Path, count: int, seed: int) -> None:
    with open_example(tmp_path / "shop") as crew:
        tasks, commits, sessions = facts(crew)
        asyncio.run(press_keys(crew, count, seed))
        tasks_after, commits_after, sessions_after = facts(crew)
    assert tasks <= tasks_after
    assert commits <= commits_after
    assert sessions <= sessions_after
