"""A coder and a reviewer that never agree, in an installed crew with a low threshold."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model.model import State
from tests.journeys.crews import WORK, Crew, started

REJECT = """\
if [ -e "$NOTES/agree" ]; then
  liza verdict approve "read it, ran it"
else
  liza verdict reject "1. $LIZA_TASK.txt: the total of line $$ is not rounded"
fi
"""


def is_tripped(state: State) -> bool:
    return state.circuit_breaker.status == "TRIGGERED"


def test_a_review_loop_pauses_the_crew_until_a_person_acts(tmp_path: Path) -> None:
    breaker = {"review_loop": 3, "severity": {"review_loop": "halt"}}
    with started(tmp_path, breaker=breaker, max_review_cycles=9) as crew:
        crew.add("task-1")
        coder = crew.agent("coder-1", crew.script("coder", WORK))
        reviewer = crew.agent("code-reviewer-1", crew.script("reviewer", REJECT))
        crew.wait(lambda _: crew.paths.signal("PAUSE").exists(), "the pause")
        crew.wait(is_tripped, "the trip")
        shown = crew.liza("status")
        assert "! circuit breaker, review_loop: task-1 had " in shown, shown
        assert 'liza resume "…"' in shown
        assert "liza resume\n" not in shown
        check_shown(crew)

        refused = crew.liza("resume", code=1)
        assert "circuit breaker, review_loop" in refused
        assert crew.paths.signal("PAUSE").exists()

        (crew.notes / "agree").touch()
        answer = crew.json("resume", "rounding was in no spec")
        assert (answer["resolved"], answer["cleared"]) == (["review_loop"], ["PAUSE"])
        crew.wait_status("task-1", "MERGED")
        (trip,) = crew.state().circuit_breaker.history
        assert trip.resolved is not None
        assert trip.root_cause == "rounding was in no spec"
        assert trip.resolved_by.startswith("human:")
        assert "rounding was in no spec" in crew.liza("breaker")
        assert "no trip of the circuit breaker is open" in crew.liza("breaker", "resolve", "again", code=1)
        assert (coder.stop(), reviewer.stop()) == (0, 0)


def check_shown(crew: Crew) -> None:
    """The trip with its evidence, as text and for programs."""
    shown = crew.json("breaker")
    assert shown["status"] == "TRIGGERED"
    (trip,) = shown["open"]
    assert (trip["trigger"], trip["severity"], trip["tasks"]) == ("review_loop", "halt", ["task-1"])
    assert len(trip["evidence"]) >= 3
    text = crew.liza("breaker")
    assert all(line in text for line in trip["evidence"])
    assert "breaker_tripped" in [alert["kind"] for alert in crew.json("status")["alerts"]]
    crew.wait(lambda _: "breaker_tripped" in crew.paths.alerts.read_text(), "the alert")


PLAN = """\
[ -e "$NOTES/brief" ] || liza ready > "$NOTES/brief"
[ -e "$NOTES/shown" ] || liza breaker > "$NOTES/shown"
touch "$NOTES/agree"
liza breaker resolve "rounding was in no spec; the reviewer agrees now" || echo "no trip is open"
liza handoff "decided" --done
"""


@pytest.mark.campaign
def test_a_breaker_checkpoint_wakes_a_planner_and_the_crew_continues(tmp_path: Path) -> None:
    with started(tmp_path, breaker={"review_loop": 2}, max_review_cycles=9) as crew:
        crew.add("task-1", "task-2")
        stopped = [
            crew.agent(agent, crew.script(agent, text))
            for agent, text in (("coder-1", WORK), ("code-reviewer-1", REJECT), ("planner-1", PLAN))
        ]
        crew.wait(lambda state: all(task.status == "MERGED" for task in state.tasks), "both merged")
        brief, shown = ((crew.notes / name).read_text() for name in ("brief", "shown"))
        assert "BREAKER_TRIPPED: circuit breaker, review_loop: task-1 had 2 rejections" in brief
        assert "TRIGGERED" in shown
        # The reviewer may reject twice again before the planner's decision reaches it: that is another trip.
        trip = crew.state().circuit_breaker.history[0]
        assert (trip.severity, str(trip.resolved_by).partition(".")[0]) == ("checkpoint", "planner-1")
        assert [supervisor.stop() for supervisor in stopped] == [0, 0, 0]
