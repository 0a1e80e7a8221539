"""The planner: cuts the goal into tasks, leaves to the person what only a person can know, and says when it is done."""

from __future__ import annotations

import json

from liza.demo.agents import plan
from liza.demo.agents.hands import AgentBrief, read_brief, say, tell


def main() -> None:
    """One session."""
    brief = read_brief()
    why = brief.need(r"^WHY YOU WERE WOKEN\s+(\w+)")
    decided = _plan(brief) if why == "INITIAL_PLANNING" else plan.DECISIONS.get(why, f"{why}: nothing to change")
    tell([*brief.liza, "handoff", decided, "--done"])
    say(decided)


def _plan(brief: AgentBrief) -> str:
    spec = brief.need(r"^GOAL .*  SPEC (\S+)$")
    tasks = [{**task, "spec_ref": spec} for task in plan.TASKS]
    # JSON is YAML, and quotes what a shell or a parser would take as orders.
    tell([*brief.liza, "task", "add", "--file", "-"], stdin=json.dumps(tasks))
    return f"{len(tasks)} tasks, each with a command that can show it undone"


if __name__ == "__main__":
    main()
