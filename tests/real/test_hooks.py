"""Liza's hooks inside real programs: they fire, what they say reaches the model, and a project's own go on running."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from liza.briefs import inbox
from liza.model.paths import Paths
from liza.programs.hooks.hook_events import load_template
from liza.system.installation import liza_path
from tests.real.conftest import Begin, Scene
from tests.real.model import Asked, Say, Script, Shell, Turn, turns

pytestmark = pytest.mark.real

PROGRAMS = ["codex", "pi", "copilot", "gemini", "vibe", "opencode", "qwen", "claude"]
LATE = "LATE-WORD: submit it now"


def pushed(put: Callable[[], None]) -> Script:
    """A model that commits and ends its turn without a word to Liza, and submits once a message tells it to."""
    seen: list[str] = []

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("a title")
        if asked.done == 0:
            return Shell("printf x > one.txt && git add -A && git -c user.name=a -c user.email=a@b commit -q -m one")
        if LATE in asked.text and asked.done == 1:
            return Shell(f"{liza_path()} submit")
        if LATE in asked.text:
            return Say("done")
        if not seen:
            seen.append("said")
            put()
        return Say("I am done")

    return answer


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_message_at_the_turns_end_is_handled_at_once(begin: Begin, program: str) -> None:
    scenes: list[Scene] = []

    def put() -> None:
        inbox.queue_message(Paths(scenes[0].crew.root), "coder-1", LATE, "human:ann", datetime.now(UTC))

    scene = begin([program], pushed(put))
    scenes.append(scene)
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: scene.crew.status("one") == "READY_FOR_REVIEW" and scene.spent(), "work in review", supervisor)
    assert supervisor.stop() == 0
    assert scene.crew.git("show", "--name-only", "--format=", "task/one") == "one.txt"
    (message,) = inbox.list_done(Paths(scene.crew.root), "coder-1")
    events = {event for event, what in load_template(program).events.items() if what.push or what.context}
    assert message.by is not None
    assert message.by.removeprefix("hook ") in events
    ready = json.loads((Paths(scene.crew.root).run("coder-1.1") / "ready").read_text())
    assert ready["evidence"].startswith("hook ")
    assert not (Paths(scene.crew.root).run("coder-1.1") / "hooks.log").exists()


def test_projects_hooks_go_on_running_and_no_commit_has_ours(
    begin: Begin,
) -> None:
    scene = begin(["gemini"], pushed(lambda: None))
    root = scene.crew.root
    theirs = {"hooks": {"AfterAgent": [{"hooks": [{"type": "command", "command": "touch $LIZA_ROOT/theirs-ran"}]}]}}
    (root / ".gemini").mkdir()
    (root / ".gemini" / "settings.json").write_text(json.dumps(theirs, indent=2) + "\n")
    scene.crew.git("add", ".gemini")
    scene.crew.git("commit", "-q", "-m", "hooks")
    scene.crew.liza("sync")
    scene.crew.add("one")
    supervisor = scene.start("gemini")
    scene.wait(lambda: (root / "theirs-ran").exists() and scene.spent(), "their hook", supervisor)
    supervisor.stop()
    assert scene.crew.git("show", "--name-only", "--format=", "task/one") == "one.txt"
    assert scene.crew.git("show", "task/one:.gemini/settings.json") == json.dumps(theirs, indent=2)


def test_a_request_that_may_shorten_a_conversation_is_no_compaction(begin: Begin) -> None:
    """gemini sends PreCompress before each request. A brief after each of them would fill the conversation."""
    rounds = [Shell(f"echo round {number}") for number in range(4)]
    scene = begin(["gemini"], turns(*rounds, Shell(f"{liza_path()} block 'enough' --ask 'is it?'")))
    root = scene.crew.root
    theirs = {"PreCompress": [{"hooks": [{"type": "command", "command": "echo >> $LIZA_ROOT/theirs-ran"}]}]}
    (root / ".gemini").mkdir()
    (root / ".gemini" / "settings.json").write_text(json.dumps({"hooks": theirs}, indent=2) + "\n")
    scene.crew.git("add", ".gemini")
    scene.crew.git("commit", "-q", "-m", "hooks")
    scene.crew.liza("sync")
    scene.crew.add("one")
    supervisor = scene.start("gemini")
    scene.wait(lambda: scene.crew.status("one") == "BLOCKED", "its closing command", supervisor)
    assert len((root / "theirs-ran").read_text()) >= len(rounds)
    mark = "liza:begin run=coder-1.1"
    assert len({asked.text.count(mark) for asked in scene.model.asked}) == 1
    assert not (Paths(root).run("coder-1.1") / "hooks.log").exists()
    supervisor.stop()


SNAPSHOT = "SNAPSHOT-WORD: what the conversation was about"


def test_an_automatic_compaction_leaves_the_brief_with_the_model(begin: Begin) -> None:
    """gemini's history becomes a summary, and its first message stays: it has the block of the file."""
    scenes: list[Scene] = []

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say(SNAPSHOT)
        if LATE in asked.text:
            return Say("done") if asked.done else Shell(f"{liza_path()} block 'enough' --ask 'is it?'")
        if asked.done == 0:
            return Shell("echo one")
        inbox.queue_message(Paths(scenes[0].crew.root), "coder-1", LATE, "human:ann", datetime.now(UTC))
        return Say("I am done", used=900_000)

    scene = begin(["gemini"], answer)
    scenes.append(scene)
    scene.crew.add("one")
    supervisor = scene.start("gemini")
    scene.wait(lambda: scene.crew.status("one") == "BLOCKED", "its closing command", supervisor)
    assert any("state_snapshot" in asked.text for asked in scene.model.asked if not asked.tools), "it was compacted"
    later = [asked for asked in scene.model.asked if asked.tools and SNAPSHOT in str(asked.body.get("contents"))]
    assert later, "the model went on with the summary"
    mark = "liza:begin run=coder-1.1"
    assert {str(asked.body).count(mark) for asked in later} == {1}
    supervisor.stop()
