"""Tasks that cannot be done as they are: two coders fail one, or a reviewer rejects it up to the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.board.file_store import revision_journal
from liza.model.model import State
from tests.journeys.crews import APPROVE, WORK, Crew, started

ROOT_CAUSE = "two concerns in one task: the file and its index"
PLAN = f"""\
liza ready > "$NOTES/brief.$LIZA_RUN"
case $LIZA_RUN in
planner-1.1)
    liza task unblock task-1 --answer "begin with the file, then its index" ;;
planner-1.2)
    cat > "$NOTES/parts.yaml" <<'YAML'
- {{id: part-1, description: Write the file, done_when: part-1.txt is there, scope: part-1.txt, spec_ref: README.md}}
- {{id: part-2, description: Write its index, done_when: part-2.txt is there, scope: part-2.txt, spec_ref: README.md,
   depends_on: [part-1]}}
YAML
    liza task unblock task-1 --answer "a third time" 2> "$NOTES/refused" || true
    liza task supersede task-1 --file "$NOTES/parts.yaml" --because "{ROOT_CAUSE}" ;;
esac
liza handoff "planned" --done
"""


def all_merged(state: State) -> bool:
    return len(state.tasks) == 3 and all(task.status == "MERGED" for task in state.tasks[1:])


@pytest.mark.campaign
def test_a_task_two_coders_failed_is_replaced_and_merged(tmp_path: Path) -> None:
    with started(tmp_path, max_coder_iterations=1) as crew:
        crew.add("task-1")
        gives_up = '[ "$LIZA_TASK" != task-1 ] || exit 0\n'
        stopped = [
            crew.agent(agent, crew.script(agent.rpartition("-")[0], text))
            for agent, text in (
                ("coder-1", gives_up + WORK),
                ("coder-2", gives_up + WORK),
                ("code-reviewer-1", APPROVE),
                ("planner-1", PLAN),
            )
        ]
        state = crew.wait(all_merged, "both parts merged")
        task = state.tasks[0]
        assert (task.status, sorted(task.failed_by)) == ("SUPERSEDED", ["coder-1", "coder-2"])
        assert task.superseded_by == ("part-1", "part-2")
        assert task.rescope_reason == ROOT_CAUSE
        assert [part.supersedes for part in state.tasks[1:]] == ["task-1", "task-1"]
        first, second = ((crew.notes / f"brief.planner-1.{number}").read_text() for number in (1, 2))
        assert "WHY YOU WERE WOKEN  BLOCKED_TASKS" in first
        assert "WHY YOU WERE WOKEN  HYPOTHESIS_EXHAUSTION" in second
        assert "FAILED coder-1, coder-2" in second or "FAILED coder-2, coder-1" in second
        assert "supersede" in (crew.notes / "refused").read_text()
        records = list(revision_journal.iter_newest_first(crew.paths.journal))
        by_planner = [record.event for record in records if record.actor == "planner-1"]
        assert by_planner.count("supersede") == 1
        assert "task add" not in by_planner, "both parts were added in the same transaction"
        assert ROOT_CAUSE in crew.liza("task", "show", "task-1")
        assert [supervisor.stop() for supervisor in stopped] == [0] * 4


REJECT = """\
if [ "$LIZA_TASK" = task-1 ] && ! grep -q "half up" task-1.txt; then
  liza verdict reject "1. task-1.txt: round $(wc -l < task-1.txt) is wrong"
else
  liza verdict approve "read it, ran it"
fi
"""
STUBBORN = """\
liza ready > "$NOTES/brief.$LIZA_RUN"
if grep -q "the reviewer is right" "$NOTES/brief.$LIZA_RUN"; then
  echo "half up" >> task-1.txt
else
  echo "half down" >> task-1.txt
fi
git add -A
git commit -q -m "$LIZA_RUN"
liza submit
"""


@pytest.mark.campaign
def test_a_fifth_rejection_blocks_a_task_for_a_person(
    crew: Crew,
) -> None:
    crew.add("task-1")
    coder = crew.script("coder", STUBBORN)
    crew.agent("coder-1", coder)
    crew.agent("code-reviewer-1", crew.script("reviewer", REJECT))
    task = crew.wait_status("task-1", "BLOCKED")
    assert (task.review_cycles_current, task.failed_by) == (5, ("coder-1",))
    assert (task.blocked_reason or "").startswith("review_deadlock: 5 rejections; the last: 1. task-1.txt: round 5")
    assert [anomaly.type for anomaly in crew.state().anomalies] == ["review_deadlock"]
    (waiting,) = [row for row in crew.json("status")["waiting"] if row["about"] == "task-1"]
    assert waiting["next"].startswith("liza answer task-1")

    crew.liza("answer", "task-1", "the reviewer is right: round half up")
    crew.wait_status("task-1", "MERGED")
    assert "review_deadlock, by code-reviewer-1: 5 rejections; the last: 1. task-1.txt: round 5 is wrong" in crew.liza(
        "status"
    )
    assert crew.git("show", "integration:task-1.txt").splitlines() == ["half down"] * 5 + ["half up"]
