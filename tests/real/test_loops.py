"""Real programs whose model calls tools without end: they are warned, ended and blocked; and budgets hold meanwhile."""

from __future__ import annotations

import re
import time

import pytest

from tests.real.conftest import Begin, Scene
from tests.real.model import INPUT, OUTPUT, Asked, Say, Script, Shell, forever

pytestmark = pytest.mark.real

LOOP = forever(Shell("sleep 0.3; echo AssertionError; exit 1"))
PROGRAMS = ["codex", "claude", "pi", "opencode", "qwen", "copilot", "vibe"]
SAME_CALLS = 20
MOST_SESSIONS = 2
"""Sessions in a row that may move nothing before their task is blocked."""
MOST_REQUESTS = 6 * SAME_CALLS
"""Twice the limit ends a session; what its model was asked while it was being ended comes on top."""


def useless_edit(asked: Asked) -> Say:
    """For a program without tools: the same edit of a line that is not there, again and again."""
    return Say("Here it is.\n\nREADME.md\n```\n<<<<<<< SEARCH\nno such line\n=======\nx\n>>>>>>> REPLACE\n```\n")


ENDS_LOOPS_ITSELF: dict[str, tuple[Script, str]] = {
    "gemini": (LOOP, "Loop detected, stopping execution"),
    "aider": (useless_edit, "reflections allowed, stopping"),
}
"""Programs that end such a turn by themselves, and what they say then. gemini does so after five equal calls, and its
hooks make each call last for seconds; aider has no tools, and lets its model correct an answer three times."""


def told(scene: Scene, program: str, began: float, requests: int) -> None:
    """The row of a table, for a person who runs this with ``-s``."""
    seconds = time.monotonic() - began
    first = next((line for line in scene.status().splitlines() if "no progress" in line), "")
    print(f"\n{program} | {requests} requests | {seconds:.1f} s | {first.strip()}")


def alerts(scene: Scene) -> str:
    """What was written down for a person."""
    return scene.crew.paths.alerts.read_text() if scene.crew.paths.alerts.exists() else ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_endless_loop_of_a_real_program_blocks_its_task(begin: Begin, program: str) -> None:
    scene = begin([program], LOOP)
    scene.crew.add("one")
    began = time.monotonic()
    supervisor = scene.start(program)
    scene.wait(lambda: "no_progress" in alerts(scene), "the warning", supervisor)
    assert "makes no progress: the same call" in scene.status()
    told(scene, program, began, len(scene.model.asked))
    scene.wait(lambda: scene.crew.heard("one").count("ended") == 1, "the end of the first session", supervisor)
    told(scene, program, began, len(scene.model.asked))
    assert len(scene.model.asked) < MOST_REQUESTS, scene.told()
    (end,) = [event.detail or "" for event in scene.crew.task("one").history if event.event == "ended"]
    assert re.match(r"no progress: the same call with the same result \d+ times \(.*echo AssertionError", end), end
    assert "Do something else, or run `" in scene.said_to_model(), "the warning did not reach the model"
    scene.wait(lambda: alerts(scene).count("no_progress") == MOST_SESSIONS, "the last warning", supervisor)
    scene.wait(lambda: scene.crew.status("one") == "BLOCKED", "the block", supervisor)
    assert f"{MOST_SESSIONS} sessions in a row" in (scene.crew.task("one").blocked_reason or "")
    told(scene, program, began, len(scene.model.asked))
    assert supervisor.stop() == 0
    assert scene.crew.living() == []
    scene.wait(lambda: len(scene.spent()) == MOST_SESSIONS, "the ledger")
    assert {one.outcome for one in scene.spent()} == {"looped"}


@pytest.mark.parametrize("program", ENDS_LOOPS_ITSELF)
def test_a_program_that_ends_its_loop_blocks_its_task(begin: Begin, program: str) -> None:
    script, words = ENDS_LOOPS_ITSELF[program]
    scene = begin([program], script)
    scene.crew.add("one")
    began = time.monotonic()
    supervisor = scene.start(program)
    scene.wait(lambda: scene.crew.status("one") == "BLOCKED", "the block", supervisor)
    told(scene, program, began, len(scene.model.asked))
    assert words in (scene.crew.task("one").blocked_reason or ""), scene.told()
    assert len(scene.model.asked) < SAME_CALLS
    assert supervisor.stop() == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_token_budget_ends_a_turn_before_its_end(begin: Begin, program: str) -> None:
    most = 10 * (INPUT + OUTPUT)
    scene = begin([program], LOOP, budget={"tokens_per_task": most}, loop={"same_calls": 0})
    scene.crew.add("one")
    began = time.monotonic()
    supervisor = scene.start(program)
    scene.wait(lambda: scene.crew.paths.signal("PAUSE").exists(), "the pause", supervisor)
    why = scene.crew.paths.signal("PAUSE").read_text()
    scene.wait(lambda: scene.spent(), "the ledger", supervisor)
    print(f"\n{program} | {len(scene.model.asked)} requests | {time.monotonic() - began:.1f} s | {why.strip()}")
    assert f"of {most:,} tokens" in why
    assert "estimate" not in why
    assert len(scene.model.asked) < 10 + MOST_REQUESTS
    (spent,) = scene.spent()
    assert spent.used is not None
    assert spent.used.tokens >= most
    assert supervisor.stop() == 0
