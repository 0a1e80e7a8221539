"""A planner stops the crew until a person has looked; nobody else in a session can."""

from __future__ import annotations

import pytest

from tests.journeys.crews import APPROVE, WORK, Crew

WHY = "the spec names two formats, and each half of the tasks needs another one"
PLAN = f"""\
echo "$LIZA_RUN" >> "$NOTES/runs"
if [ -e "$NOTES/asked" ]; then exec liza handoff "the person chose" --done; fi
liza pause 2> "$NOTES/pause" && echo paused >> "$NOTES/pause"
liza pause --checkpoint 2> "$NOTES/unsaid" && echo set >> "$NOTES/unsaid"
liza pause --checkpoint "{WHY}" > "$NOTES/set"
liza pause --checkpoint "{WHY}" --json > "$NOTES/again"
touch "$NOTES/asked"
liza handoff "I do not know which format is meant" --done
"""
CODE = f"""\
if liza pause --checkpoint "I would like a break" 2> "$NOTES/coder"; then echo set >> "$NOTES/coder"; fi
{WORK}
"""


@pytest.mark.campaign
def test_a_planner_stops_the_crew_until_a_person_resumes_it(crew: Crew) -> None:
    crew.add("t1")
    program = crew.script(
        "agent", f'case "$LIZA_RUN" in\nplanner-*)\n{PLAN};;\ncoder-*)\n{CODE};;\n*)\n{APPROVE};;\nesac\n'
    )
    crew.agent("coder-1", program)
    crew.agent("code-reviewer-1", program)
    crew.wait_status("t1", "MERGED")
    assert "this is for a person" in (crew.notes / "coder").read_text()
    assert crew.paths.signal("CHECKPOINT").exists() is False

    crew.agent("planner-1", program)
    crew.wait(lambda _: "planners_checkpoint" in crew.paths.alerts.read_text(), "the alarm")
    crew.wait(lambda state: state.planning.run is None, "the end of planning")
    state = crew.state()
    assert (state.goal.status, state.sprint.status) == ("IN_PROGRESS", "IN_PROGRESS")
    assert "this is for a person" in (crew.notes / "pause").read_text()
    assert "needs its reason" in (crew.notes / "unsaid").read_text()
    assert "next: liza handoff" in (crew.notes / "set").read_text()
    assert '"unchanged"' in (crew.notes / "again").read_text()

    shown = crew.liza("status")
    assert f"! planner-1 asks you to look before anything new starts: {WHY}" in shown
    assert "\n    liza resume\n" in shown
    assert shown.count(WHY) == 1, "the reason stands there once"
    crew.add("t2")
    agents = {agent["id"]: agent["why"] for agent in crew.json("status")["agents"]}
    assert agents["coder-1"].startswith("CHECKPOINT is set")
    assert crew.status("t2") == "UNCLAIMED"

    assert "CHECKPOINT cleared" in crew.liza("resume")
    crew.wait_status("t2", "MERGED")
    crew.wait(lambda state: state.goal.status == "COMPLETED", "the end of the goal")
    assert (crew.notes / "runs").read_text().split() == ["planner-1.1", "planner-1.2"]
    assert "asks you to look" not in crew.liza("status")
