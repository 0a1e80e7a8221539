"""A crew whose agents are driven over ACP: a scripted program that speaks the real protocol, behind the sidecar."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest

from liza.briefs import inbox
from liza.programs import liveness
from liza.usage import ledger
from tests.acp.rig import AGENT
from tests.journeys.crews import BIN, Crew, Supervisor, started

ROW = """\
[programs.scripted]
command = "{program}"
[programs.scripted.acp]
args = ["{agent}", "{home}"]
{more}
"""
COMMIT = {"shell": 'echo work >> "$LIZA_TASK.txt" && git add -A && git commit -q -m work'}
SUBMIT = {"shell": "liza submit"}


@dataclass
class Scene:
    crew: Crew
    home: Path

    def script(self, *turns: list[dict], **switches: object) -> None:
        (self.home / "script.json").write_text(json.dumps({"turns": turns, **switches}))

    def row(self, more: str = "", program: str = sys.executable) -> None:
        text = ROW.format(program=program, agent=AGENT, home=self.home, more=more)
        (self.crew.paths.liza / "programs.toml").write_text(text)

    def start(self, agent: str = "coder-1") -> Supervisor:
        return self.crew.agent(agent, "scripted:acp")

    def received(self, method: str) -> list[dict]:
        log = self.home / "log.jsonl"
        messages = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [message["params"] for message in messages if message.get("method") == method]

    def prompts(self) -> list[str]:
        return [params["prompt"][0]["text"] for params in self.received("session/prompt")]


BOTH_WAYS = pytest.mark.parametrize(
    "scene", ["off", pytest.param("required", marks=pytest.mark.needs("bwrap"))], indirect=True
)
"""Without boxes, and with the program in a box."""


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    home = tmp_path / "agent"
    home.mkdir()
    with started(tmp_path, confinement=getattr(request, "param", "off"), shared=[str(home)]) as crew:
        made = Scene(crew, home)
        made.row()
        crew.add("one")
        yield made


@pytest.mark.sample(1)
@BOTH_WAYS
def test_an_acp_agent_submits_its_task_with_usage_recorded(scene: Scene) -> None:
    usage = {"update": {"sessionUpdate": "usage_update", "used": 300, "size": 1000}}
    scene.row('[programs.scripted.acp.usage]\ninput = ["usage.inputTokens"]\noutput = ["usage.outputTokens"]')
    scene.script([COMMIT, usage, {"usage": {"usage": {"inputTokens": 70, "outputTokens": 7}}}, SUBMIT, {"say": "Done"}])
    supervisor = scene.start()
    scene.crew.wait_status("one", "READY_FOR_REVIEW")
    scene.crew.wait(lambda _: list(ledger.read_entries(scene.crew.paths)), "the ledger")
    (spent,) = ledger.read_entries(scene.crew.paths)
    assert spent.used is not None
    assert (spent.used.input, spent.used.output, spent.program) == (70, 7, "scripted:acp")
    assert supervisor.stop() == 0
    assert "Mode: Liza coder" in scene.prompts()[0]
    assert "one.txt is there" in scene.prompts()[0]
    assert scene.crew.heard("one")[-2:] == ["claim", "submit"]
    assert scene.crew.git("show", "task/one:one.txt") == "work"
    assert not list(scene.crew.root.glob("**/AGENTS.md"))
    scene.crew.wait_ended()


@BOTH_WAYS
@pytest.mark.campaign
def test_a_note_reaches_a_running_session_as_a_prompt(scene: Scene) -> None:
    scene.script([COMMIT, {"say": "I wait."}, {"wait": "never"}], [{"say": "I see."}], [SUBMIT])
    supervisor = scene.start()
    scene.crew.wait(lambda _: scene.prompts(), "the first prompt")
    scene.crew.wait(lambda _: "I wait." in _output(scene.crew), "the turn runs")
    scene.crew.liza("note", "--to", "coder-1", "--now", "--priority", "urgent", "use tabs")
    scene.crew.wait(lambda _: len(scene.prompts()) == 2, "the urgent note")
    scene.crew.liza("note", "--to", "coder-1", "--now", "and submit")
    scene.crew.wait_status("one", "READY_FOR_REVIEW")
    assert "use tabs" in scene.prompts()[1]
    assert "and submit" in scene.prompts()[2]
    assert len(scene.received("session/cancel")) == 1
    assert supervisor.stop() == 0


def test_an_agent_without_a_closing_command_is_reminded_by_prompt(scene: Scene) -> None:
    scene.crew.configure(idle_after=1)
    scene.script([COMMIT, {"say": "It is done, I think."}], [SUBMIT])
    scene.start()
    scene.crew.wait_status("one", "READY_FOR_REVIEW")
    assert "You are still coder-1.1" in scene.prompts()[1]


@pytest.mark.campaign
def test_a_killed_supervisors_successor_continues_the_session(scene: Scene) -> None:
    scene.script([COMMIT, {"say": "I wait."}, {"wait": "gate"}, SUBMIT])
    first = scene.start()
    scene.crew.wait(lambda _: "I wait." in _output(scene.crew), "the turn runs")
    first.kill()
    second = scene.start()
    second.wait_said("adopt|coder-1")
    (scene.home / "gate").touch()
    scene.crew.wait_status("one", "READY_FOR_REVIEW")
    assert len(scene.prompts()) == 1
    assert second.stop() == 0
    scene.crew.wait_ended()


@pytest.mark.campaign
@BOTH_WAYS
def test_stopped_and_killed_sessions_continue_their_conversation(scene: Scene) -> None:
    scene.script([COMMIT, {"say": "I wait."}, {"wait": "never"}], [{"say": "I wait."}, {"wait": "never"}], [SUBMIT])
    supervisor = scene.start()
    scene.crew.wait(lambda _: "I wait." in _output(scene.crew), "the turn runs")
    assert supervisor.stop() == 0
    scene.crew.wait_ended()
    scene.start()
    scene.crew.wait(lambda _: len(scene.prompts()) == 2, "the second session")
    scene.crew.wait(lambda _: "I wait." in _output(scene.crew, "coder-1.2"), "its turn runs")
    state = liveness.read_state(scene.crew.paths.run("coder-1.2"))
    assert isinstance(state, liveness.RunningSession)
    os.kill(state.child.pid, signal.SIGKILL)
    scene.crew.wait_status("one", "READY_FOR_REVIEW")
    assert [params["sessionId"] for params in scene.received("session/load")] == [
        scene.received("session/prompt")[0]["sessionId"]
    ] * 2
    assert len({params["sessionId"] for params in scene.received("session/prompt")}) == 1


@pytest.mark.campaign
def test_a_conversation_of_a_session_too_young_is_not_loaded(scene: Scene) -> None:
    scene.row("load_min_age = 3600")
    scene.script([COMMIT, {"say": "I wait."}, {"wait": "never"}])
    supervisor = scene.start()
    scene.crew.wait(lambda _: "I wait." in _output(scene.crew), "the turn runs")
    assert supervisor.stop() == 0
    scene.start()
    scene.crew.wait(lambda _: len(scene.prompts()) == 2, "the second session")
    assert scene.received("session/load") == []


@pytest.mark.campaign
def test_an_old_idle_session_is_replaced_by_a_fresh_one(scene: Scene) -> None:
    scene.crew.configure(session_max=1, idle_after=600)
    scene.script([{"shell": "test -e one.txt && liza submit"}, COMMIT, {"say": "I wait."}])
    supervisor = scene.start()
    task = scene.crew.wait_status("one", "READY_FOR_REVIEW")
    assert scene.crew.heard("one") == ["add", "claim", "too old", "resume", "submit"]
    assert (task.iteration, task.failed_by) == (1, ())
    assert scene.received("session/load") == []
    reason = "coder-1.1: it was older than config.session_max"
    assert scene.crew.json("task", "show", "one")["conversation"]["why"] == reason
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_a_silent_model_is_reported_and_its_task_stays_claimed(scene: Scene) -> None:
    scene.script([{"error": {"code": -32603, "message": "429 rate limit, try again in 600 s"}}])
    supervisor = scene.start()
    scene.crew.wait(lambda _: "429 rate limit" in scene.crew.liza("status"), "status names the limit")
    assert scene.crew.status("one") == "CLAIMED"
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_attach_shows_a_session_and_sends_lines_as_prompts(scene: Scene) -> None:
    scene.script([{"say": "I am at work."}, {"wait": "gate"}], [{"say": "I read it."}, COMMIT, SUBMIT])
    supervisor = scene.start()
    scene.crew.wait(lambda _: "I am at work." in _output(scene.crew), "the turn runs")
    assert scene.crew.json("attach", "coder-1") == {"agent": "coder-1", "run": "coder-1.1", "command": []}
    out = scene.crew.notes / "attached"
    words = [str(BIN / "liza"), "attach", "coder-1"]
    with out.open("wb") as file, subprocess.Popen(words, cwd=scene.crew.root, stdin=PIPE, stdout=file) as attached:
        assert attached.stdin is not None
        attached.stdin.write(b"use tabs\n")
        attached.stdin.flush()
        scene.crew.wait(lambda _: inbox.list_pending(scene.crew.paths, "coder-1"), "the line waits")
        (scene.home / "gate").touch()
        scene.crew.wait_status("one", "READY_FOR_REVIEW")
        scene.crew.wait(lambda _: "I read it." in out.read_text(), "the answer is shown")
        attached.send_signal(signal.SIGINT)
    assert "use tabs" in scene.prompts()[1]
    shown = out.read_text()
    assert "I am at work." in shown
    assert '{"type"' not in shown
    assert supervisor.stop() == 0


def test_the_model_learns_why_a_guard_blocks_a_command(scene: Scene) -> None:
    forbidden = [{"shell": "git push -f origin HEAD && touch pushed"}, {"say": "?"}]
    hidden = [{"shell": "g=push; git $g"}, {"shell": "cd . && bash -c 'git config user.name x'"}, {"wait": "never"}]
    scene.script(forbidden, hidden, [COMMIT, SUBMIT])
    supervisor = scene.start()
    scene.crew.wait_status("one", "READY_FOR_REVIEW")
    _, first, second = scene.prompts()
    assert "Refused" in first
    assert "git push -f origin HEAD" in first
    assert "push" in first.partition("HEAD")[2], "the reason"
    assert second.count("\n- `") == 2
    assert len(scene.received("session/cancel")) == 1
    assert supervisor.stop() == 0


@pytest.mark.sample(1)
@BOTH_WAYS
def test_down_leaves_no_process_of_a_session_over_acp(scene: Scene) -> None:
    scene.script([{"shell": "sleep 600"}], ignore_end=True, deaf_to_cancel=True)
    scene.row("drain = 0.5")
    supervisor = scene.start()
    scene.crew.wait(lambda _: "sleep 600" in _output(scene.crew), "the tool runs")
    scene.crew.liza("down")
    assert supervisor.wait_gone() == 0
    scene.crew.wait_ended()
    assert scene.crew.status("one") == "CLAIMED"


def _output(crew: Crew, run: str = "coder-1.1") -> str:
    with suppress(OSError):
        return (crew.paths.run(run) / "output.log").read_text()
    return ""


def test_a_missing_login_ends_the_supervisor_and_costs_no_try(scene: Scene) -> None:
    # An adapter speaks for the program; a person logs in with the program itself.
    scene.row(f'command = "{sys.executable}"', program="the-program")
    scene.script([], login=True)
    supervisor = scene.start()
    assert supervisor.process.wait(60) == 5, supervisor.said()
    assert "the model refuses the program's login: session/new: Authentication required" in supervisor.said()
    assert "start it by hand once, and answer it or log in" in supervisor.said()
    assert supervisor.said().rstrip().endswith(f"cd {scene.crew.root} && the-program")
    task = scene.crew.task("one")
    assert (task.status.value, task.failed_by, task.idle_sessions) == ("CLAIMED", (), 0)
    assert scene.crew.heard("one") == ["add", "claim", "unusable", "stop"]
