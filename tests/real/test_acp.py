"""Real programs, driven over ACP by a supervisor without a terminal."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress

import pytest

from tests.journeys.crews import BIN, Supervisor
from tests.real import rigs
from tests.real.conftest import Begin, Scene
from tests.real.model import INPUT, OUTPUT, Asked, Fault, Say, Shell, Turn, turns

pytestmark = pytest.mark.real
LIZA = BIN / "liza"
COMMIT = Shell("printf x > one.txt && git add one.txt && git commit -q -m one")
SUBMIT = Shell(f"{LIZA} submit && printf 'is%sthere' 2")
SUBMITTED = "is2there"
"""What the request after it has: the result of the command, not its text."""
DONE = Say("All of it is done.")
WORK = turns(COMMIT, SUBMIT, DONE)
PROGRAMS = ["copilot", "opencode", "vibe", "qwen", "gemini", "claude", "codex"]
COUNTS_LAST_REQUEST = ("opencode",)
"""Programs whose figure is that of the last request of a turn."""
TOO_YOUNG = ("gemini",)
"""Programs whose conversation is not loaded within the first minute."""
CONTEXT = ("copilot", "opencode", "vibe", "claude", "codex")
"""Programs that tell how full the context is."""


def of(program: str) -> list[str]:
    """The rigs that the program needs over ACP: its adapter, if it has one."""
    return [name for name in (f"{program}:acp", program) if name in rigs.RIGS][:1]


def lines(scene: Scene, kind: str, run: str = "coder-1.1") -> list[dict]:
    """The lines of one type in a run's output, also of an archived run."""
    paths = list(scene.crew.root.glob(f".liza/**/{run}/output.log"))
    texts = [line for path in paths for line in path.read_text().splitlines() if line.startswith("{")]
    return [line for line in map(json.loads, texts) if line["type"] == kind]


def submitted(scene: Scene, supervisor: Supervisor) -> None:
    """Until the work is in review and the session is over; then nothing of it lives."""
    scene.wait(lambda: scene.crew.status("one") == "READY_FOR_REVIEW" and scene.spent(), "work in review", supervisor)
    assert supervisor.stop() == 0
    assert scene.crew.living() == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_its_task_and_is_accounted_for(begin: Begin, program: str) -> None:
    scene = begin(of(program), WORK)
    scene.crew.add("one")
    submitted(scene, scene.start(f"{program}:acp"))
    assert scene.crew.heard("one")[-2:] == ["claim", "submit"], scene.crew.heard("one")
    asked = next(asked for asked in scene.model.asked if asked.tools)
    assert "Mode: Liza coder" in asked.text
    assert "one.txt is there" in asked.text, "the brief is not in the first request"
    assert scene.crew.git("show", "task/one:one.txt") == "x"
    (spent,) = scene.spent()
    assert spent.used is not None
    answers = 1 if program in COUNTS_LAST_REQUEST else sum(1 for asked in scene.model.asked if asked.tools)
    assert (spent.used.input, spent.used.output) == (answers * INPUT, answers * OUTPUT)
    assert bool(lines(scene, "context")) == (program in CONTEXT)


def waiting(asked: Asked) -> Turn:
    """Wait in a tool until it is interrupted; then do the work."""
    if not asked.tools:
        return Say("a title")
    if "please submit" not in asked.text:
        return Shell("printf x > one.txt && git add one.txt && git commit -q -m one && sleep 300")
    return SUBMIT if SUBMITTED not in asked.text else DONE


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_urgent_note_cancels_the_turn_and_comes_next(begin: Begin, program: str) -> None:
    scene = begin(of(program), waiting)
    scene.crew.add("one")
    supervisor = scene.start(f"{program}:acp")
    committed(scene, supervisor)
    before = len(scene.model.asked)
    scene.crew.liza("note", "--to", "coder-1", "--now", "--priority", "urgent", "please submit")
    scene.wait(lambda: any("please submit" in one.text for one in scene.model.asked[before:]), "the note", supervisor)
    submitted(scene, supervisor)
    assert lines(scene, "turn")[0]["end"] == "cancelled"


def committed(scene: Scene, supervisor: Supervisor) -> None:
    """Until the tool of the first turn has committed."""

    def has_commit() -> bool:
        with suppress(subprocess.CalledProcessError):  # A ref may be new.
            return "one" in scene.crew.git("log", "--all", "--format=%s").split("\n")
        return False

    scene.wait(has_commit, "a commit", supervisor)


def pausing(asked: Asked) -> Turn:
    """Commit, end the turn, and submit when a note says so."""
    if not asked.tools:
        return Say("a title")
    if "please submit" in asked.text:
        return SUBMIT if SUBMITTED not in asked.text else DONE
    return COMMIT if asked.done == 0 else Say("I wait for your word.")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_note_reaches_idle_sessions_and_stopped_ones_continue(begin: Begin, program: str) -> None:
    scene = begin(of(program), pausing, idle_after=600)
    scene.crew.add("one")
    supervisor = scene.start(f"{program}:acp")
    scene.wait(lambda: lines(scene, "turn"), "the first turn is over", supervisor)
    supervisor.kill()
    successor = scene.start(f"{program}:acp")
    scene.crew.wait_supervised("coder-1")
    assert successor.stop() == 0
    assert scene.crew.living() == []
    third = scene.start(f"{program}:acp")
    scene.wait(lambda: lines(scene, "turn", "coder-1.2"), "the first turn of the next session is over", third)
    is_loaded = program not in TOO_YOUNG
    assert lines(scene, "session", "coder-1.2")[0]["loaded"] is is_loaded
    asked = [asked for asked in scene.model.asked if asked.tools][-1]
    assert ("I wait for your word." in asked.text) is is_loaded, "the conversation goes on"
    scene.crew.liza("note", "--to", "coder-1", "--now", "please submit")
    submitted(scene, third)


def pushing(asked: Asked) -> Turn:
    """Push, which is forbidden; go on when the reason is there."""
    if not asked.tools:
        return Say("a title")
    if SUBMITTED in asked.text:
        return DONE
    if "[liza] Refused" in asked.text:
        return SUBMIT if COMMIT.command in asked.text else COMMIT
    return Say("It did not run.") if asked.done else Shell("cd . && git push --force origin HEAD")


ASKING = [name for name in PROGRAMS if name != "codex"]
"""Programs that can be made to ask before each command."""


@pytest.mark.parametrize("program", ASKING)
def test_a_forbidden_command_is_blocked_with_the_reason(begin: Begin, program: str) -> None:
    scene = begin(of(program), pushing)
    scene.crew.add("one")
    supervisor = scene.start(f"{program}:acp")
    scene.wait(lambda: any("[liza] Refused" in asked.text for asked in scene.model.asked), "the reason", supervisor)
    submitted(scene, supervisor)
    (refused, *allowed) = lines(scene, "permission")
    assert not refused["allowed"]
    assert all(permission["allowed"] for permission in allowed)
    told = next(asked.text for asked in scene.model.asked if "[liza] Refused" in asked.text)
    assert "git push --force origin HEAD" in told.partition("[liza] Refused")[2]
    assert refused["reason"][:40] in told


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("status", [401, 400])
def test_a_refusing_model_ends_the_session_as_a_failure(begin: Begin, program: str, status: int) -> None:
    scene = begin(of(program), WORK, Fault(status), answer_timeout=60)
    scene.crew.add("one")
    supervisor = scene.start(f"{program}:acp")
    scene.wait(lambda: scene.spent(), "the end of the session", supervisor)
    assert scene.spent()[0].outcome in ("unusable", "unanswered")
    failures = lines(scene, "failure")
    # Without one its program retried until the supervisor ended the session.
    assert failures or "no answer from its model" in supervisor.said()
    assert {failure["kind"] for failure in failures} <= ({"login", "broken"} if status == 401 else {"broken"})
    assert scene.crew.status("one") == "CLAIMED"
