"""A runtime that reports to Liza by the functions of the worker API, in an installed crew with its supervisor."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.briefs import inbox
from tests.journeys.crews import QUICK, Crew, started

WORKER = """\
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path
from liza.crew.crew import find_crew
from liza.api.health import TelemetryRequest, record_telemetry
from liza.api.identity import BearerCache, IdentityRequest, identify
from liza.api.lifecycle import LifecycleRequest, report_lifecycle
from liza.api.prompts import AcknowledgeRequest, ContextRequest, acknowledge_prompts, compose_context
from liza.briefs.prompt_stream import PromptStream
from liza.briefs.rules.context_rules import ContextMode
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage

notes = Path(sys.argv[1])
crew = find_crew(Path(os.environ["LIZA_ROOT"]))
me = identify(crew, IdentityRequest(token=os.environ["LIZA_TOKEN"], session_id="s-1"))
run = crew.run_dir(me.run_id)
assert BearerCache().verify(run, me.token)
stream = PromptStream(run)


def now():
    return datetime.now(UTC)


def report(event, **more):
    answer = report_lifecycle(run, LifecycleRequest(event=event, run_id=run.run, timestamp=now(), **more), now())
    assert answer.applied, answer


def turn(usage, name):
    used = TurnUsage(input_tokens=70, cache_read_tokens=30, output_tokens=20, model="m-1", cost_usd=0.25)
    event = TelemetryEvent(
        timestamp=now(), usage=used, id=name, context_usage=usage, tools_called=(ReportedCall(name="shell"),)
    )
    for _ in range(3):
        record_telemetry(run, TelemetryRequest(run_id=run.run, events=(event,)), now())


def next_prompt(words):
    while True:
        for prompt in stream.next_prompts(now()):
            with (notes / "prompts").open("a") as file:
                file.write(f"{run.run} {prompt.priority} {prompt.sender}: {prompt.text}\\n")
            acknowledge_prompts(run, AcknowledgeRequest(run_id=run.run, ids=(prompt.id,)), now())
            if words in prompt.text:
                return
        time.sleep(0.02)


report("started", session_id="s-1")
report("ready")
text = "\\n".join(section.content for section in compose_context(crew, ContextRequest(run_id=run.run)).sections)
(notes / f"context.{run.run}").write_text(text + "\\n")
(notes / f"token.{run.run}").write_text(os.environ["LIZA_TOKEN"] + "\\n" + me.token + "\\n")
if (notes / "waits").exists():
    next_prompt("You are still coder-1.1")
    report("busy")
    report("stopped")
    (notes / "stopped").write_text("yes\\n")
    time.sleep(600)
report("busy")
if run.run == "coder-1.1":
    next_prompt("change course")
    turn(0.83, "t1")
    next_prompt("of your context window is used")
    turn(0.97, "t2")
    time.sleep(600)
turn(0.1, "t1")
Path(f"{me.task_id}.txt").write_text("work\\n")
os.system("git add -A; git commit -q -m work; liza submit > /dev/null")
report("idle")
report("stopping")
report("stopped", metadata={"exit_code": 0})
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "worker.py").write_text(WORKER)
    return f'exec {sys.executable} "{tmp_path}/worker.py" "$NOTES"\n'


@pytest.mark.campaign
def test_a_native_worker_with_a_full_window_gets_a_successor(tmp_path: Path, program: str) -> None:
    with started(tmp_path, api=True) as crew:
        crew.configure(**QUICK, context_handoff=0.8)
        crew.add("task-1")
        crew.agent("coder-1", crew.script("native", program, ready=False))
        context = crew.wait_note("context.coder-1.1")
        assert "You are coder-1." in context
        assert "TASK task-1" in context
        crew.wait(lambda _: _agent(crew)["phase"] == "busy", "the report")
        assert _agent(crew)["state_source"] == "reported"
        assert "busy (reported by api)" in crew.liza("agents", "coder-1")
        crew.liza("note", "--to", "task-1", "--now", "--priority", "urgent", "change course")
        crew.wait(lambda state: state.agents["coder-1"].context_percent == 83, "the context on the board")
        crew.wait_status("task-1", "READY_FOR_REVIEW")
        assert crew.heard("task-1")[:5] == ["add", "claim", "context full", "resume", "submit"]
        assert crew.task("task-1").iteration == 1
        urgent, request = (crew.notes / "prompts").read_text().splitlines()
        assert urgent.startswith("coder-1.1 urgent human:")
        assert urgent.endswith(": change course")
        assert request.startswith("coder-1.1 system liza: 83% of your context window is used.")
        again = crew.wait_note("context.coder-1.2")
        assert "its context window was full" in again
        crew.wait(lambda _: crew.json("metrics")["by_outcome"].get("finished"), "the end of the second session")
        metrics = crew.json("metrics")
        assert (metrics["by_model"]["m-1"]["tokens"], metrics["by_model"]["m-1"]["money"]) == (360, 0.75)
        assert metrics["by_tool"] == {"shell": {"calls": 3, "failures": 0, "seconds": 0.0}}
        assert metrics["by_task"]["task-1"]["tokens"] == 360
        assert crew.json("status")["cost"]["money"] == 0.75
        _assert_secret(crew, crew.wait_note("token.coder-1.1").split())


def _assert_secret(crew: Crew, tokens: list[str]) -> None:
    secrets = [token.partition(":")[2].encode() for token in tokens]
    assert len(secrets) == 2
    for file in crew.paths.liza.rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert not any(secret in file.read_bytes() for secret in secrets), file


def test_a_supervisor_trusts_a_runtime_reporting_a_wait_or_end(tmp_path: Path, program: str) -> None:
    with started(tmp_path, api=True) as crew:
        (crew.notes / "waits").touch()
        crew.configure(**QUICK, idle_after=1)
        crew.add("task-1")
        supervisor = crew.agent("coder-1", crew.script("native", program, ready=False))
        crew.wait_note("stopped")
        (crew.notes / "waits").unlink()
        supervisor.wait_said("its runtime reported its end, but its process did not exit")
        assert (crew.notes / "prompts").read_text().startswith("coder-1.1 normal liza: You are still coder-1.1.")
        crew.wait(lambda _: "ended" in crew.heard("task-1"), "the end")
        crew.wait_note("context.coder-1.2")


def _agent(crew: Crew) -> dict[str, object]:
    (row,) = crew.json("status")["agents"]
    return dict(row)


def test_a_priority_is_checked_and_has_the_note_delivered(tmp_path: Path) -> None:
    with started(tmp_path, api=True) as crew:
        crew.work_by_hand("task-1")
        assert "need a recipient" in crew.liza("note", "--priority", "urgent", "hello", code=2)
        told = crew.liza("note", "--to", "coder-1", "--now", "--priority", "soon", "hello", code=2)
        assert "unknown priority 'soon'; valid: system, urgent, normal, low" in told
        crew.liza("note", "--to", "coder-1", "--now", "first")
        crew.liza("note", "--to", "coder-1", "--now", "--priority", "normal", "second")
        crew.liza("note", "--to", "coder-1", "--priority", "low", "third")
        stored = sorted(path.name[-6:-5] for path in crew.paths.runs.glob("coder-1/inbox/*.json"))
        assert stored == ["l", "n", "s"]
        none = crew.run("logs", "coder-1", "--deliveries")
        assert (none.stdout, none.stderr) == ("", "no try to deliver a message to coder-1 is on record\n")
        inbox.claim_for_hook(crew.paths, "coder-1", "coder-1.1", datetime.now(UTC))
        entries = crew.json("logs", "coder-1", "--deliveries", "-n", "2")["deliveries"]
        assert [(entry["event"], entry["attempt"], entry["message"][-1]) for entry in entries] == [
            ("attempted", 1, "n"),
            ("attempted", 1, "l"),
        ]
        assert crew.liza("logs", "coder-1", "--deliveries").count("try 1  attempted  hook") == 3
        assert "--deliveries needs an agent" in crew.liza("logs", "--deliveries", code=2)
