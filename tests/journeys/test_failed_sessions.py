"""A session that says itself that it failed leaves a report on the board: once for each cause."""

from __future__ import annotations

import pytest

from tests.journeys.crews import APPROVE, WORK, Crew

FAIL = """\
echo "$LIZA_RUN" >> "$NOTES/tries"
if [ "$(wc -l < "$NOTES/tries")" -le 3 ]; then
    echo "cannot find the compiler of step $(wc -l < "$NOTES/tries")"
    exit 1
fi
"""
EXIT = """\
case $LIZA_RUN in
planner-*)
    liza ready > "$NOTES/brief"
    liza handoff "seen" --done ;;
coder-1.1)
    echo begun > "$NOTES/begun"
    sleep 600 ;;
*)
    liza exit 1 ;;
esac
"""


@pytest.mark.campaign
def test_retries_of_one_cause_leave_one_report(crew: Crew) -> None:
    crew.add("t1")
    program = crew.script("agent", f'case "$LIZA_RUN" in\ncoder-*)\n{FAIL}{WORK};;\n*)\n{APPROVE};;\nesac\n')
    coder = crew.agent("coder-1", program)
    crew.wait(lambda state: state.anomalies, "the report")
    (report,) = crew.state().anomalies
    assert (report.type, report.task, report.reporter) == ("session_failed", "t1", "coder-1.1")
    assert "cannot find the compiler" in report.details["text"]
    crew.wait_status("t1", "READY_FOR_REVIEW")
    shown = crew.liza("status")
    assert "1 anomaly open: liza report resolve a-1 WHY" in shown
    assert "a-1 session_failed, by coder-1.1: " in shown
    assert len(crew.state().anomalies) == 1
    assert crew.json("breaker")["status"] == "OK"
    crew.agent("code-reviewer-1", program)
    crew.wait_status("t1", "MERGED")
    assert "session_failed" not in crew.liza("status"), "it concerns a closed task"
    assert coder.stop() == 0


def test_a_killed_session_is_no_failure_and_planners_read_the_others(crew: Crew) -> None:
    crew.add("t1")
    program = crew.script("agent", EXIT)
    crew.agent("coder-1", program)
    crew.wait_note("begun")
    crew.kill_session("coder-1.1")
    crew.wait(lambda state: state.anomalies, "the report")
    (report,) = crew.state().anomalies
    assert report.reporter == "coder-1.2"
    assert "closing code 1" in report.details["text"]
    crew.liza("task", "add", "--id", "t2", "--desc", "incomplete")
    crew.agent("planner-1", program)
    assert "a-1 session_failed (by coder-1.2 in t1): closing code 1" in crew.wait_note("brief")
