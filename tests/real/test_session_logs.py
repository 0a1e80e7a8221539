"""`liza logs` of real programs: what a person reads of a session, beside what the program printed."""

from __future__ import annotations

import json

import pytest

from liza.model.paths import Paths
from liza.programs.presets import preset_table
from tests.journeys.crews import BIN
from tests.real.conftest import Begin, Scene
from tests.real.model import Asked, Call, Fault, Say, Shell, Turn, turns
from tests.real.test_headless import PROGRAMS, submitted

pytestmark = pytest.mark.real

LIZA = BIN / "liza"
COMMIT = "printf x > one.txt && git add one.txt && git commit -q -m one"
SESSION = turns(Shell(COMMIT), Shell("cat no-such-file"), Shell(f"{LIZA} submit"), Say("All of it is done."))


def read(scene: Scene, run: str) -> list[str]:
    """Return the rows of a run without their times, and print how much of the output they are."""
    shown, raw = (scene.crew.liza("logs", run, "-n", "100000", *words) for words in ((), ("--raw",)))
    print(f"{len(raw.splitlines())} lines, {len(raw)} bytes; read: {len(shown.splitlines())} rows, {len(shown)} bytes")
    print(shown)
    return [line[10:] for line in shown.splitlines()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_session_log_shows_each_command_and_the_last_words(begin: Begin, program: str) -> None:
    scene = begin([program], SESSION)
    scene.crew.add("one")
    submitted(scene, program)
    rows = read(scene, "coder-1.1")
    commands = [row for row in rows if row.startswith("runs")]
    assert COMMIT in commands[0], commands
    # One program tells only of a command that failed.
    assert commands[0].endswith("· ended" if program == "gemini" else "· ok"), commands
    assert "cat no-such-file" in commands[1], commands
    assert "no-such-file" in commands[1].partition("·")[2], "the reason of the failure"
    assert f"{LIZA} submit" in commands[2], commands
    assert [row for row in rows if row.startswith("unknown")] == []
    assert any("All of it is done." in row for row in rows), rows
    usage = preset_table.load_presets(Paths(scene.crew.root)).resolve(program).usage
    assert any(row.startswith("tokens") for row in rows) == bool(usage.input and not usage.file), rows


@pytest.mark.parametrize(("program", "reason"), [("claude", "simple_expansion"), ("codex", "not permitted")])
def test_a_refused_command_is_shown_as_the_reason_for_blocking(begin: Begin, program: str, reason: str) -> None:
    refused = "if [ x$LIZA_TASK = xone ]; then rm -rf /etc/x; fi"
    scene = begin([program], turns(Shell(refused), Say("I may not.")), permissions="prompts")
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: scene.crew.status("one") == "BLOCKED", "the block", supervisor)
    (row,) = [row for row in read(scene, "coder-1.1") if row.startswith("runs")]
    assert row.startswith(f"runs     {refused} · refused: "), row
    assert reason in row
    blocked = scene.crew.task("one").blocked_reason or ""
    assert f"{program} refused a command (liza config set permissions bypass allows all): `{refused}`: " in blocked
    assert supervisor.stop() == 0


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_a_refused_login_is_read_in_the_log(begin: Begin, program: str) -> None:
    scene = begin([program], turns(Say("done")), Fault(401, message="Incorrect API key provided"))
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: supervisor.process.poll() is not None, "the supervisor's leave")
    rows = read(scene, "coder-1.1")
    # One program names the status, the other its meaning.
    assert any("401" in row or "authentication" in row for row in rows), rows
    assert [row for row in rows if row.startswith("unknown")] == []


HELPER_TASK = "Find the callers of f."
HELPERS = {
    "claude": Call("Agent", {"description": "callers", "prompt": HELPER_TASK, "subagent_type": "general-purpose"}),
    "codex": Call("spawn_agent", {"message": HELPER_TASK}),
    "gemini": Call("invoke_agent", {"agent_name": "generalist", "prompt": HELPER_TASK}),
}


@pytest.mark.parametrize("program", HELPERS)
def test_a_sub_agents_work_is_part_of_the_calls_row(begin: Begin, program: str) -> None:
    call = HELPERS[program]
    waits = [Call("wait_agent", {"targets": []})] if program == "codex" else []

    def script(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("a title")
        said = json.dumps(asked.body.get("input") or asked.body.get("messages") or asked.body.get("contents"))
        if HELPER_TASK in said and f'"{call.tool}"' not in said:
            return Shell("echo inner") if asked.done == 0 else Say("Three callers.")
        wanted = (call, *waits, Shell(f"{COMMIT} && {LIZA} submit"), Say("All of it is done."))
        return wanted[min(asked.done, len(wanted) - 1)]

    scene = begin([program], script)
    scene.crew.add("one")
    submitted(scene, program)
    rows = read(scene, "coder-1.1")
    (folded,) = [row for row in rows if "of its sub-agent: --subagents" in row]
    print(scene.crew.liza("logs", "coder-1.1", "--subagents"))
    # The log of one program does not say which call started a sub-agent.
    assert folded.startswith("note" if program == "gemini" else f"uses     {call.tool}"), rows
    assert "1 call" in folded
    assert not any("echo inner" in row for row in rows)
    assert "echo inner" in scene.crew.liza("logs", "coder-1.1", "--subagents")


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_of_a_resumed_conversation_each_session_shows_its_own_part(begin: Begin, program: str) -> None:
    work = (
        f"{COMMIT} && {LIZA} submit",
        f"printf y > two.txt && git add two.txt && git commit -q -m two && {LIZA} submit",
    )

    def script(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("a title")
        number = 1 if "a comma is missing" in asked.text else 0
        return Say("That was all.") if work[number][:20] in asked.text else Shell(work[number])

    scene = begin([program], script)
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: scene.crew.heard("one").count("submit") == 1 and scene.spent(), "work in review", supervisor)
    scene.crew.liza("verdict", "reject", "a comma is missing", "--task", "one")
    scene.wait(lambda: len(scene.spent()) == 2, "the second session", supervisor)
    assert supervisor.stop() == 0
    assert scene.crew.json("task", "show", "one")["conversation"]["continues"] == "coder-1.1"
    for number, run in enumerate(("coder-1.1", "coder-1.2")):
        rows = [row for row in read(scene, run) if row.startswith("runs")]
        assert [work[number] in row for row in rows] == [True], rows


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_a_usage_limit_is_read_in_the_log(begin: Begin, program: str) -> None:
    limit = Fault(429, message="You have hit your usage limit. Try again in 90 s")
    scene = begin([program], turns(Say("done")), limit)
    scene.crew.add("one")
    supervisor = scene.start(program)
    signs = ("usage limit", "rate_limit", "429")
    scene.wait(
        lambda: any(sign in scene.crew.run("logs", "coder-1.1").stdout for sign in signs), "the limit", supervisor
    )
    supervisor.stop()
    assert [row for row in read(scene, "coder-1.1") if row.startswith("unknown")] == []
