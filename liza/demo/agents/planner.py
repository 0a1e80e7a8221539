"""The planner: cuts the goal into tasks, leaves to the person what only a person can know, and says when it is done."""

from __future__ import annotations

import json

from liza.demo.agents import planner_script
from liza.demo.agents.agent_commands import AgentBrief, print_progress, read_brief, run_command


def main() -> None:
    """One session."""
    brief = read_brief()
    why = brief.require(r"^WHY YOU WERE WOKEN\s+(\w+)")
    decided = (
        _add_tasks(brief)
        if why == "INITIAL_PLANNING"
        else planner_script.DECISIONS.get(why, f"{why}: nothing to change")
    )
    run_command([*brief.liza, "handoff", decided, "--done"])
    print_progress(decided)


def _add_tasks(brief: AgentBrief) -> str:
    spec = brief.require(r"^GOAL .*  SPEC (\S+)$")
    tasks = [{**task, "spec_ref": spec} for task in planner_script.TASKS]
    # JSON is YAML, and quotes what a shell or a parser would take as orders.
    run_command([*brief.liza, "task", "add", "--file", "-"], stdin=json.dumps(tasks))
    return f"{len(tasks)} tasks, each with a command that can show it undone"


if __name__ == "__main__":
    main()
