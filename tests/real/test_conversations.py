"""Real programs: the session after a rejection resumes the conversation, beside the same work in a new one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.journeys.crews import BIN
from tests.real.conftest import Begin, Scene
from tests.real.model import INPUT, OUTPUT, Asked, Say, Shell, Turn
from tests.real.test_acp import of

pytestmark = pytest.mark.real
LIZA = BIN / "liza"
FILES, LINES = 6, 120
REASON = "the file needs a second line"
PROGRAMS = ["codex", "opencode:acp"]
STORES = {"codex": ".codex/sessions"}
"""Where a program keeps its conversations, below HOME."""


def working(asked: Asked) -> Turn:
    """Read what the conversation does not have of six files, read the brief, do the work, and submit."""
    if not asked.tools:
        return Say("a title")
    for number in range(FILES):
        if f"{number}-last-line" not in asked.text:
            return Shell(f"seq -f '{number}: line %g of a file of the project' {LINES}; printf '%s-last-line' {number}")
    number = 2 if "run:coder-1.2" in asked.text or "run:coder-1.3" in asked.text else 1
    if f"brief{number}there" not in asked.text:
        return Shell(f"{LIZA} ready && printf 'brief%sthere' {number}")
    if f"is{number}there" not in asked.text:
        work = f"echo {number} >> one.txt && git add one.txt && git commit -q -m one"
        return Shell(f"{work} && {LIZA} submit && printf 'is%sthere' {number}")
    return Say("All of it is done.")


def lose(scene: Scene, program: str, loss: str) -> None:
    """Nothing, the record of the first session, or what the program stored of its conversation."""
    if loss == "no record":
        (scene.crew.paths.run("coder-1.1") / "run.json").unlink()
    elif loss == "no conversation":
        shutil.rmtree(Path(os.environ["HOME"]) / STORES[program])


def shared(one: str, other: str) -> int:
    """The length of the beginning that two texts have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def figures(before: Sequence[Asked], after: Sequence[Asked]) -> dict[str, int]:
    """Requests of a session, and their characters: all, and those that no earlier request began with."""
    sent, new, texts = 0, 0, [asked.text for asked in before if asked.tools]
    for asked in after:
        if asked.tools:
            sent += len(asked.text)
            new += len(asked.text) - max((shared(asked.text, text) for text in texts), default=0)
            texts.append(asked.text)
    return {"requests": len(texts) - sum(1 for asked in before if asked.tools), "characters": sent, "new": new}


CASES = [(program, loss) for program in PROGRAMS for loss in ("nothing", "no record")]


@pytest.mark.parametrize(("program", "loss"), [*CASES, ("codex", "no conversation")])
def test_a_session_after_a_rejection_has_its_conversation_and_brief(begin: Begin, program: str, loss: str) -> None:
    scene = begin(of(program.partition(":")[0]) if ":" in program else [program], working, restart_after_crash=1)
    crew = scene.crew
    crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: crew.heard("one").count("submit") == 1 and scene.spent(), "work in review", supervisor)
    first = list(scene.model.asked)
    lose(scene, program, loss)
    crew.liza("verdict", "reject", REASON, "--task", "one")
    sessions = 3 if loss == "no conversation" else 2
    scene.wait(
        lambda: crew.heard("one").count("submit") == 2 and len(scene.spent()) == sessions, "the mended work", supervisor
    )
    assert supervisor.stop() == 0

    second = [asked for asked in scene.model.asked[len(first) :] if asked.tools]
    assert any(REASON in asked.text for asked in second), "the new brief"
    has_conversation = "5-last-line" in second[0].text
    assert has_conversation is (loss == "nothing")
    shown = crew.json("task", "show", "one")
    assert shown["conversation"]["continues"] == ("coder-1.1" if loss == "nothing" else None)
    assert (shown["iteration"], shown["failed_by"]) == (2, []), "a lost conversation is no try and no crash"
    seconds = [round(spent.seconds, 1) for spent in scene.spent()]
    print(json.dumps({"program": program, "lost": loss, **figures(first, second), "seconds": seconds}))


COUNTED = ["codex", "claude", "gemini", "qwen", "copilot", "pi", "vibe", "opencode"]
OVER_ACP = ["claude:acp", "codex:acp", "copilot:acp", "vibe:acp", "qwen:acp"]


@pytest.mark.parametrize("program", [*COUNTED, *OVER_ACP])
def test_each_request_of_a_resumed_conversation_counts_once(begin: Begin, program: str) -> None:
    scene = begin(of(program.partition(":")[0]) if ":" in program else [program], working, restart_after_crash=1)
    crew = scene.crew
    crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: crew.heard("one").count("submit") == 1 and scene.spent(), "work in review", supervisor)
    answered = [sum(1 for asked in scene.model.asked if asked.tools)]
    crew.liza("verdict", "reject", REASON, "--task", "one")
    scene.wait(lambda: len(scene.spent()) == 2, "the second session", supervisor)
    answered.append(sum(1 for asked in scene.model.asked if asked.tools) - answered[0])
    assert supervisor.stop() == 0
    used = [entry.used for entry in scene.spent()]
    print(json.dumps({"program": program, "answered": answered, "output": [each and each.output for each in used]}))
    assert crew.json("task", "show", "one")["conversation"]["continues"] == "coder-1.1"
    for each, number in zip(used, answered, strict=True):
        assert each is not None
        # Some programs do not report the request during which the session is ended.
        assert each.output in (number * OUTPUT, (number - 1) * OUTPUT)
        assert each.input == each.output // OUTPUT * INPUT
