"""`liza up --coders auto`: coders are started while tasks wait, and retired when none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.crews import APPROVE, LIMIT, WORK, Crew, started
from tests.journeys.test_api_in_a_crew import up

SCRIPT = f"""\
case "$LIZA_RUN" in
coder-*)
    read line < "$NOTES/gate-$LIZA_TASK"
    {WORK.replace(chr(10), chr(10) + "    ")};;
*)
    {APPROVE} ;;
esac
"""


def supervised_coders(crew: Crew) -> set[str]:
    agents = crew.state().agents.items()
    return {name for name, agent in agents if name.startswith("coder-") and agent.status != "OFFLINE"}


@pytest.mark.campaign
def test_a_crew_grows_from_one_coder_to_four_and_shrinks_to_one(tmp_path: Path) -> None:
    tasks = [f"t{number}" for number in range(1, 5)]
    with started(tmp_path, poll_interval=1) as crew:
        for task in tasks:
            crew.gate(f"gate-{task}")
        crew.add(*tasks)
        process = up(crew, "--planners", "0", "--coders", "auto:1-4", "--program", crew.script("agent", SCRIPT))
        crew.wait(lambda state: sum(task.status == "CLAIMED" for task in state.tasks) == 4, "four claims")
        assert supervised_coders(crew) == {"coder-1", "coder-2", "coder-3", "coder-4"}
        for task in tasks:
            crew.open_gate(f"gate-{task}")
        crew.wait(lambda state: all(task.status == "MERGED" for task in state.tasks), "all merges")
        crew.wait(lambda _: len(supervised_coders(crew)) == 1, "one coder that is left")
        process.terminate()
        assert process.wait(LIMIT) == 0
        events = [event for task in crew.state().tasks for event in task.history]
        # Nobody was retired while it held a task: no work was given back, and no session failed.
        assert [event.event for event in events if event.event in ("stop", "failed", "crash")] == []
        assert len([event for event in events if event.event == "claim"]) == len(tasks)
