"""The scripted planner: splits the goal into tasks, leaves questions to the person, and ends when the goal is met."""

from __future__ import annotations

import json

from liza.demo.agents import planner_script
from liza.demo.agents.agent_commands import AgentBrief, print_progress, read_brief, run_command
from liza.rules.statuses import WakeTrigger


def main() -> None:
    """Run one session."""
    brief = read_brief()
    trigger = brief.require(r"^WHY YOU WERE WOKEN\s+(\w+)")
    decision = (
        _add_tasks(brief)
        if trigger == WakeTrigger.INITIAL_PLANNING
        else planner_script.DECISIONS.get(trigger, f"{trigger}: nothing to change")
    )
    run_command([*brief.liza, "handoff", decision, "--done"])
    print_progress(decision)


def _add_tasks(brief: AgentBrief) -> str:
    spec = brief.require(r"^GOAL .*  SPEC (\S+)$")
    tasks = [{**task, "spec_ref": spec} for task in planner_script.TASKS]
    # JSON is valid YAML and quotes all strings.
    run_command([*brief.liza, "task", "add", "--file", "-"], stdin=json.dumps(tasks))
    return f"{len(tasks)} tasks, each with a command that checks it"


if __name__ == "__main__":
    main()
