"""Real programs, driven over ACP by a supervisor without a terminal."""

from __future__ import annotations

import json

import pytest

from tests.journeys.crews import BIN
from tests.real.conftest import Begin, Scene
from tests.real.model import Say, Shell, turns

pytestmark = pytest.mark.real
LIZA = BIN / "liza"
COMMIT = Shell("printf x > one.txt && git add one.txt && git commit -q -m one")
SUBMIT = Shell(f"{LIZA} submit")
DONE = Say("All of it is done.")
WORK = turns(COMMIT, SUBMIT, DONE)
PROGRAMS = ["copilot", "opencode", "vibe", "qwen", "gemini", "claude", "codex"]


def lines(scene: Scene, kind: str, run: str = "coder-1.1") -> list[dict]:
    """The lines of one type in a run's output, also of an archived run."""
    (path,) = scene.crew.root.glob(f".liza/**/{run}/output.log")
    objects = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    return [line for line in objects if line["type"] == kind]


def submitted(scene: Scene, program: str) -> None:
    supervisor = scene.start(f"{program}:acp")
    scene.wait(lambda: scene.crew.status("one") == "READY_FOR_REVIEW" and scene.spent(), "work in review", supervisor)
    assert supervisor.stop() == 0
    assert scene.crew.heard("one")[-2:] == ["claim", "submit"], scene.crew.heard("one")
    assert scene.crew.living() == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_told_its_task_commits_submits_and_is_accounted_for(begin: Begin, program: str) -> None:
    scene = begin([program], WORK)
    scene.crew.add("one")
    submitted(scene, program)
    asked = next(asked for asked in scene.model.asked if asked.tools)
    assert "Mode: Liza coder" in asked.text
    assert "one.txt is there" in asked.text, "the brief is not in the first request"
    assert scene.crew.git("show", "task/one:one.txt") == "x"
    (spent,) = scene.spent()
    print(program, spent, lines(scene, "usage"), lines(scene, "context"))
