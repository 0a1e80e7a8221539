"""Programs that call the same tool, spend, or add tasks without end, in an installed crew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from liza.model.model import State
from tests.conftest import variant
from tests.journeys.crews import APPROVE, WORK, Crew, started

ROW = """\
[programs.looping]
command = "{command}"
events = "parts"
instructions = ["AGENTS.md"]
[programs.looping.headless]
prompt = "none"
[programs.looping.usage]
when = {{ type = "used" }}
input = ["input"]
output = ["output"]
cost = "cost"
free = false
"""
CALL = (
    '{"type":"tool_use","part":{"callID":"1","tool":"bash","state":{"status":"completed",'
    '"input":{"command":"pytest -q"},"output":"1 failed in 0.$number s"}}}'
)
FOREVER = f"""\
number=0
while :; do
  number=$((number + 1))
  echo "{CALL.replace('"', chr(92) + '"')}"
  sleep 0.02
done
"""


POLISH = """\
liza task add --id "polish-${LIZA_RUN##*.}" --desc "Polish it" --done "it is nicer" --scope "*.txt" --spec README.md
liza handoff "more polish" --done
"""


def looping(crew: Crew, text: str) -> str:
    """A program whose row says how it tells of its tool calls."""
    command = crew.script("looping", text).removeprefix("script:")
    (crew.paths.liza / "programs.toml").write_text(ROW.format(command=command))
    return "looping"


def test_an_endless_loop_is_ended_and_blocks_its_task(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1", "task-2")
        supervisor = crew.agent("coder-1", looping(crew, FOREVER))
        crew.wait(lambda _: crew.status("task-1") == "BLOCKED", "the block")
        task = crew.task("task-1")
        told = r"no progress: the same call with the same result \d+ times \(bash pytest -q\)"
        assert re.fullmatch(f"2 sessions in a row ended without progress; the last: {told}", task.blocked_reason or "")
        assert crew.heard("task-1").count("ended") == 2
        alerts = crew.paths.alerts.read_text()
        assert alerts.count("no_progress  coder-1.1 makes no progress: the same call with the same result") == 1, alerts
        assert "Do something else" in "".join(
            one.read_text() for one in crew.paths.runs.glob("coder-1/inbox/**/*.json")
        ), "the agent was not told"
        crew.wait(lambda _: crew.status("task-2") == "CLAIMED", "the next task")
        assert supervisor.stop() == 0
        assert crew.json("metrics")["by_outcome"]["looped"]["sessions"] >= 2


def test_a_token_limit_ends_a_session_during_its_turn(tmp_path: Path) -> None:
    with started(tmp_path, budget={"tokens_per_task": 1000}) as crew:
        crew.add("task-1")
        used = '{"type":"used","input":90,"output":10,"cost":0}'
        program = looping(crew, f"while :; do echo '{used}'; sleep 0.05; done\n")
        supervisor = crew.agent("coder-1", program)
        crew.wait(lambda _: crew.paths.signal("PAUSE").exists(), "the pause")
        crew.wait(lambda _: crew.json("metrics")["by_outcome"].keys() - {"living"}, "the end of the session")
        shown = crew.liza("status")
        assert "! the crew is paused: task-1 has used " in shown
        assert "of 1,000 tokens" in shown
        assert "\n    liza config set budget.tokens_per_task " in shown
        assert "cost not known, limit 1,000 tokens a task" in shown
        (alert,) = [row for row in crew.json("status")["alerts"] if row["kind"] == "budget_used"]
        assert "the crew is paused: task-1 has used " in alert["message"]
        crew.wait(lambda _: "budget_used  the crew is paused: task-1 has used " in crew.paths.alerts.read_text(), "it")
        assert supervisor.stop() == 0


def test_status_shows_every_limit_before_anything_is_spent(
    tmp_path: Path,
) -> None:
    with started(tmp_path, budget={"tokens_per_task": 100_000, "money_per_sprint": 5.0}) as crew:
        crew.add("task-1")
        assert "nothing spent yet, limit 100,000 tokens a task, $5.00 a sprint" in crew.liza("status")
        used = '{"type":"used","input":900,"output":100,"cost":0}'
        supervisor = crew.agent("coder-1", looping(crew, WORK + f"echo '{used}'\n"))
        crew.wait(lambda _: crew.json("metrics")["by_outcome"].keys() - {"living"}, "the end of the session")
        shown = crew.liza("status")
        assert "1,000 tokens, cost not known, limit 100,000 tokens a task, $5.00 a sprint" in shown
        assert (
            "config.budget.money_per_sprint does not count 1 of 1 session: looping reported no cost for the "
            "model. A token limit counts them: config.budget.tokens_per_task"
        ) in shown
        assert supervisor.stop() == 0


@pytest.mark.campaign
@pytest.mark.parametrize("rounds", [1, variant(3)])
def test_a_planner_always_adding_tasks_stops_at_a_checkpoint(tmp_path: Path, rounds: int) -> None:
    def is_stopped(state: State) -> bool:
        return (crew.root / ".liza" / "CHECKPOINT").exists() and state.planning.run is None

    with started(tmp_path) as crew:
        if rounds != 3:
            crew.liza("config", "set", "planning_rounds", str(rounds))
        crew.add("task-1")
        for agent, text in (("coder-1", WORK), ("code-reviewer-1", APPROVE), ("planner-1", POLISH)):
            crew.agent(agent, crew.script(agent, text))
        for count in (1, 2):
            state = crew.wait(is_stopped, "the checkpoint")
            assert [task.status for task in state.tasks] == ["MERGED"] * (1 + count * rounds)
            status = crew.json("status")
            assert status["signals"] == ["CHECKPOINT"]
            alarm = next(alarm for alarm in status["waiting"] if alarm["kind"] == "planning_rounds")
            times = "1 time" if rounds == 1 else f"{rounds} times in a row"
            assert f"every task is settled, and planners have added tasks {times}" in alarm["message"]
            assert alarm["next"] == "liza resume"
            assert count == 2 or "CHECKPOINT cleared" in crew.liza("resume")
