"""Real programs, started by a supervisor without a terminal: from the claim to what came of the task."""

from __future__ import annotations

import re

import pytest

from liza.model.paths import Paths
from liza.programs.presets import preset_table
from tests.journeys.crews import BIN
from tests.real.conftest import Begin, Scene
from tests.real.model import INPUT, OUTPUT, Asked, Call, Fault, Say, Script, Shell, Turn, turns

pytestmark = pytest.mark.real

LIZA = BIN / "liza"
"""As the brief names it: some programs run commands in a login shell, whose PATH is the system's own."""
DONE = Say("All of it is done.")
WORK = turns(Shell(f"printf x > one.txt && git add one.txt && git commit -q -m one && {LIZA} submit"), DONE)
CONFINED = turns(Shell("git mv README.md one.txt"), Shell("git commit -q -m one"), Shell(f"{LIZA} submit"), DONE)
PROGRAMS = ["codex", "pi", "copilot", "gemini", "vibe", "opencode", "qwen", "claude"]
TO_READY = re.compile(r"FIRST run:\s+(\S+ ready)")
TO_SUBMIT = re.compile(r"commit everything, then\s+(\S+ submit)")
NEXT = re.compile(r"nothing to commit: (\S+) block")
HAVE_PERMISSIONS = [name for name in PROGRAMS if name != "pi"]


def edits(asked: Asked) -> Turn:
    """For a program without tools, which takes the model's text for its edits."""
    if "commit message" in asked.text and "SEARCH/REPLACE" not in asked.text:
        return Say("one: the file")
    return Say("Here it is.\n\none.txt\n```\n<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE\n```\n")


def submitted(scene: Scene, program: str, agent: str = "coder-1") -> None:
    """Until the agent's work on the task ``one`` is in review, and its session is settled."""
    supervisor = scene.start(program, agent)
    scene.wait(lambda: scene.crew.status("one") == "READY_FOR_REVIEW" and scene.spent(), "work in review", supervisor)
    assert supervisor.stop() == 0
    assert scene.crew.heard("one")[-2:] == ["claim", "submit"], scene.crew.heard("one")
    assert scene.crew.living() == []


def counted(scene: Scene, program: str) -> None:
    """What the ledger says is what the model says of its answers, where the program tells it."""
    (spent,) = scene.spent()
    preset = preset_table.load_presets(Paths(scene.crew.root)).resolve(program)
    if not (preset.usage.input or preset.usage.pattern or preset.journal.file):
        assert spent.used is None
        return
    assert spent.used is not None
    answers = spent.used.output // OUTPUT
    assert 1 <= answers <= len(scene.model.asked)
    assert spent.used.output == answers * OUTPUT
    assert spent.used.input == answers * INPUT


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_its_task_and_is_accounted_for(begin: Begin, program: str) -> None:
    scene = begin([program], WORK)
    scene.crew.add("one")
    submitted(scene, program)
    assert "Mode: Liza coder" in scene.model.asked[0].text or "Mode: Liza coder" in scene.said_to_model()
    assert "one.txt is there" in scene.said_to_model(), "the brief is not in what it told its model"
    assert f"{LIZA} submit" in scene.said_to_model()
    assert scene.crew.git("show", "task/one:one.txt") == "x"
    counted(scene, program)


def to_the_letter(asked: Asked) -> Turn:
    """A model that knows no more of Liza than its brief says, and what a refusal says."""
    if not asked.tools:
        return Say("a title")
    submit = TO_SUBMIT.search(asked.text)
    first = TO_READY.search(asked.text)
    assert submit is not None
    assert first is not None
    refused = NEXT.search(asked.text)
    named = "liza-is-not-named" if refused is None else refused[1]
    commit = (
        f"command -v {named} && printf 'is%snamed' - && printf x > one.txt && git add one.txt && git commit -q -m one"
    )
    said = (first[1], f"{submit[1]}; true", commit, submit[1])
    return Shell(said[asked.done]) if asked.done < len(said) else DONE


SUBTASK = "look what is there"
TASK = {"description": "look", "prompt": SUBTASK}
SUBAGENTS = {
    "claude": Call("Agent", {**TASK, "subagent_type": "general-purpose"}),
    "codex": Call("spawn_agent", {"message": SUBTASK}),
    "copilot": Call("task", {**TASK, "agent_type": "general-purpose", "name": "look", "mode": "sync"}),
    "qwen": Call("agent", {**TASK, "subagent_type": "general-purpose"}),
}


def with_subagent(program: str) -> Script:
    """A model that has a sub-agent run a command before it does its task."""

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("a title")
        if SUBTASK in asked.text and "is-there" in asked.text:
            return Say("Something.")
        if SUBTASK in asked.text and asked.done == 0:
            return Shell("printf 'is%sthere' -")
        if asked.done == 0:
            return SUBAGENTS[program]
        begun = re.search(r'"agent_id":"([^"]+)"', asked.text)
        if begun is not None and "timed_out" not in asked.text:
            return Call("wait_agent", {"targets": [begun[1]], "timeout_ms": 20000})
        work = f"printf x > one.txt && git add one.txt && git commit -q -m one && {LIZA} submit && printf 'is%sdone' -"
        return DONE if "is-done" in asked.text else Shell(work)

    return answer


@pytest.mark.parametrize("program", SUBAGENTS)
def test_what_a_subagent_uses_is_counted_with_its_model(begin: Begin, program: str) -> None:
    scene = begin([program], with_subagent(program))
    scene.crew.add("one")
    submitted(scene, program)
    (spent,) = scene.spent()
    answers = sum(1 for asked in scene.model.asked if asked.tools)
    assert answers >= 4, "two of the sub-agent"
    assert spent.used is not None
    # Some programs do not report the request during which the session is ended.
    assert spent.used.output in (answers * OUTPUT, (answers - 1) * OUTPUT)
    assert spent.used.input == spent.used.output // OUTPUT * INPUT
    by_model = scene.crew.json("metrics", "--by", "model")["by_model"]
    assert sum(row["tokens"] for row in by_model.values()) == spent.used.tokens


@pytest.mark.parametrize("program", PROGRAMS)
def test_commands_of_the_brief_work_in_a_programs_shell(begin: Begin, program: str) -> None:
    scene = begin([program], to_the_letter)
    scene.crew.add("one")
    submitted(scene, program)
    told = scene.said_to_model()
    assert not re.search(r"liza: (command )?not found", told)
    assert "is-named" in told, "the shell finds the command that the refusal names"


@pytest.mark.parametrize("program", HAVE_PERMISSIONS)
def test_a_confined_program_can_commit_and_submit(begin: Begin, program: str) -> None:
    scene = begin([program], CONFINED, permissions="prompts")
    scene.crew.add("one")
    submitted(scene, program)


def test_the_edit_of_a_program_without_commands_is_submitted(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begin(["aider"], edits)
    scene.crew.add("one")
    submitted(scene, "aider")
    assert "one.txt is there" in scene.said_to_model()
    assert scene.crew.git("show", "task/one:one.txt") == "x"
    assert scene.crew.git("show", "--stat", "--format=%an", "task/one").count("|") == 1
    counted(scene, "aider")


def role(asked: Asked) -> Turn:
    """A coder does its task, and a reviewer approves of it."""
    script: Script = WORK
    if "Mode: Liza code-reviewer" in asked.text:
        script = turns(Shell(f'{LIZA} verdict approve "read it, ran it"'), DONE)
    return script(asked)


def test_different_programs_can_write_and_review_a_merged_task(begin: Begin) -> None:
    scene = begin(["codex", "pi"], role)
    scene.crew.add("one")
    scene.start("codex")
    scene.start("pi", "code-reviewer-1")
    scene.wait(lambda: scene.crew.status("one") == "MERGED", "a merge")
    assert scene.crew.git("show", "integration:one.txt") == "x"


def test_a_program_waits_by_itself_for_a_short_use_limit(begin: Begin) -> None:
    scene = begin(["codex"], WORK, Fault(429, times=2, retry_after=1))
    scene.crew.add("one")
    submitted(scene, "codex")
    assert scene.model.refused == 2
