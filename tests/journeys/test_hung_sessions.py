"""A session that sleeps in silence is ended; one that computes, prints or reports is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.journeys.crews import WORK, Crew, started

AT_WORK = 'echo "$$" > "$NOTES/at-$LIZA_TASK"\n'
UNTIL_OPEN = 'while [ ! -e "$NOTES/open" ]; do {}; done\n'
ALIVE = {
    "computes": UNTIL_OPEN.format(":"),
    "a child computes": f"sh -c '{UNTIL_OPEN.format(':')}'\n".replace("$NOTES", "'$NOTES'"),
    "prints": UNTIL_OPEN.format("sleep 0.2; echo step"),
    "reports": UNTIL_OPEN.format("sleep 0.2; liza heartbeat > /dev/null"),
}
ASLEEP = {"sleeps": "sleep 600\n", "looks again and again": "while :; do sleep 0.5; done\n"}


def wait_hung(crew: Crew, task_id: str) -> None:
    """Until its session was ended because it hung."""

    def is_ended(_: object) -> bool:
        return any("hung: no activity" in (event.detail or "") for event in crew.task(task_id).history)

    crew.wait(is_ended, f"the end of the hung session of {task_id}")


@pytest.mark.parametrize(
    ("alive", "asleep"),
    [
        ("computes", "sleeps"),
        pytest.param("a child computes", "looks again and again", marks=pytest.mark.campaign),
        pytest.param("prints", "sleeps", marks=pytest.mark.campaign),
        pytest.param("reports", "sleeps", marks=pytest.mark.campaign),
    ],
)
def test_only_the_session_that_sleeps_in_silence_is_ended(tmp_path: Path, alive: str, asleep: str) -> None:
    with started(tmp_path, hung_after=4, heartbeat_interval=60) as crew:
        crew.add("lives")
        crew.agent("coder-1", crew.script("alive", AT_WORK + ALIVE[alive] + WORK))
        crew.wait_note("at-lives")
        crew.add("hangs")
        # It began later: a session that counted as silent for as long would be ended before.
        crew.agent("coder-2", crew.script("asleep", AT_WORK + ASLEEP[asleep]))
        wait_hung(crew, "hangs")
        (crew.notes / "open").touch()
        task = crew.wait_status("lives", "READY_FOR_REVIEW")
        assert task.run == "coder-1.1"


WORKER = """\
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path
from liza.crew.crew import find_crew
from liza.api.health import TelemetryRequest, record_telemetry
from liza.api.identity import IdentityRequest, identify
from liza.api.lifecycle import LifecycleRequest, report_lifecycle
from liza.usage.rules.telemetry_rules import TelemetryEvent, TurnUsage

notes, kind = Path(sys.argv[1]), sys.argv[2]
crew = find_crew(Path(os.environ["LIZA_ROOT"]))
me = identify(crew, IdentityRequest(token=os.environ["LIZA_TOKEN"], session_id="s-1"))
run = crew.run_dir(me.run_id)


def now():
    return datetime.now(UTC)


def report(event):
    report_lifecycle(run, LifecycleRequest(event=event, run_id=run.run, timestamp=now()), now())


for event in ("started", "ready", "busy"):
    report(event)
if kind == "telemetry":
    used = TurnUsage(input_tokens=70, output_tokens=20, model="m-1")
    event = TelemetryEvent(timestamp=now(), usage=used)
    record_telemetry(run, TelemetryRequest(run_id=run.run, events=(event,)), now())
if kind == "lifecycle":
    time.sleep(0.5)
    report("idle")
    report("busy")
(notes / f"at-{me.task_id}").write_text("reported\\n")
while kind != "silent" and not (notes / "open").exists():
    time.sleep(0.1)
while kind == "silent":
    time.sleep(0.1)
os.system("echo work > work.txt; git add -A; git commit -q -m work; liza submit > /dev/null")
report("stopped")
"""


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["telemetry", "lifecycle"])
def test_a_worker_that_reports_its_turns_is_not_called_silent(tmp_path: Path, kind: str) -> None:
    with started(tmp_path, answer_timeout=5, idle_after=600) as crew:
        (tmp_path / "worker.py").write_text(WORKER)
        program = f'exec {sys.executable} "{tmp_path}/worker.py" "$NOTES" '
        crew.add("lives")
        crew.agent("coder-1", crew.script("reports", program + kind, ready=False))
        crew.wait_note("at-lives")
        crew.add("silent")
        crew.agent("coder-2", crew.script("silent", program + "silent", ready=False))
        crew.wait(lambda _: "unanswered" in crew.heard("silent"), "the end of the silent session")
        (crew.notes / "open").touch()
        task = crew.wait_status("lives", "READY_FOR_REVIEW")
        assert task.run == "coder-1.1"
