"""A coder asks, a person answers, and the answer is in the brief of the next session, which continues the work."""

from __future__ import annotations

import pytest

from tests.conftest import worktree_of
from tests.journeys.crews import APPROVE, WORK, Crew

QUESTION = "Which sender address?"
ANSWER = "billing@shop.example; never the old one"
ASK = f"""\
liza ready > "$NOTES/brief.$LIZA_RUN"
if ! grep -q "{ANSWER}" "$NOTES/brief.$LIZA_RUN"; then
    echo begun >> "$LIZA_TASK.txt"
    git add -A
    git commit -q -m begun
    exec liza block "the sender is in no spec" --ask "{QUESTION}" --ask "Is it the same for reminders?"
fi
echo "{ANSWER}" >> "$LIZA_TASK.txt"
git add -A
git commit -q -m answered
liza submit
"""


def test_a_persons_answer_reaches_the_next_session_of_a_coder(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    crew.agent("coder-1", crew.script("coder", ASK))
    crew.wait_status("task-1", "BLOCKED")
    crew.wait_status("task-2", "BLOCKED")
    shown = crew.liza("status")
    assert QUESTION in shown
    (waiting,) = [row for row in crew.json("status")["waiting"] if row["about"] == "task-1"]
    assert waiting["next"].startswith("liza answer task-1 ")

    refused = crew.liza("answer", "task-9", "x", code=1)
    assert "task-9" in refused
    crew.liza("answer", "task-1", ANSWER, "yes")
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    task = crew.task("task-1")
    assert task.run == "coder-1.3"
    assert "begun" in (worktree_of(crew.root, "task-1") / "task-1.txt").read_text()
    answers = [answer for answer in task.answers if answer.question == QUESTION]
    assert [answer.by.partition(":")[0] for answer in answers] == ["human"]
    assert ANSWER in (crew.notes / "brief.coder-1.3").read_text()
    assert crew.status("task-2") == "BLOCKED", "nobody answered it"
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
    crew.wait_status("task-1", "MERGED")
    assert crew.git("show", "integration:task-1.txt").splitlines() == ["begun", ANSWER]


@pytest.mark.campaign
def test_a_reviewer_gets_an_answered_review_with_its_commit(crew: Crew) -> None:
    crew.add("t1")
    crew.agent("coder-1", crew.script("coder", WORK))
    submitted = crew.wait_status("t1", "READY_FOR_REVIEW").review_commit
    silent_without = f"""liza ready > brief\ngrep -q 'Only the tests.' brief || exit 0\nrm brief\n{APPROVE}"""
    crew.agent("code-reviewer-1", crew.script("reviewer", silent_without, ready=False))
    crew.wait_status("t1", "BLOCKED")
    assert "a reviewer reviews it again" in crew.liza("answer", "t1", "Only the tests.")
    task = crew.wait_status("t1", "MERGED")
    assert (task.review_commit, crew.heard("t1").count("claim")) == (submitted, 1)
