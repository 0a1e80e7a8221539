"""A crew whose reviewer is a person: what waits, what a comment on a line does, and what is merged then."""

from __future__ import annotations

import subprocess

from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import BIN, Crew

CODER = """\
cat AGENTS.md > "$NOTES/brief-$LIZA_RUN" 2> /dev/null || true
liza ready > "$NOTES/brief-$LIZA_RUN"
if grep -q "must be 6" "$NOTES/brief-$LIZA_RUN"; then echo 6 > task-1.txt; else printf 'tax\\n5\\n' > task-1.txt; fi
git add -A
git commit -q -m "$LIZA_TASK: work of $LIZA_RUN"
liza submit
"""


def alert(crew: Crew) -> dict[str, str]:
    (waiting,) = [row for row in crew.json("status")["alerts"] if row["kind"] == "needs_verdict"]
    return dict(waiting)


def test_a_coder_fixes_what_a_person_rejects_on_a_line(crew: Crew) -> None:
    crew.add("task-1")
    program = crew.script("coder", CODER, ready=False)
    words = [str(BIN / "liza"), "up", "--planners", "0", "--reviewers", "0", "--program", program]
    with (crew.notes / "up.log").open("wb") as out:
        up = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crew.children.append(up)
    first = crew.wait_status("task-1", "READY_FOR_REVIEW").review_commit
    assert alert(crew)["next"] == 'liza verdict approve --task task-1 "…"'
    assert "no line 3" in crew.liza(
        "verdict", "reject", "no", "--task", "task-1", "--comment", "task-1.txt:3", "x", code=2
    )
    crew.liza("verdict", "approve", "no", "--task", "task-1", "--comment", "task-1.txt:2", "x", code=2)
    crew.liza("verdict", "reject", "the tax", "--task", "task-1", "--comment", "task-1.txt:2", "must be 6")
    crew.wait(lambda state: state.tasks[0].review_commit != first and state.tasks[0].status == "READY_FOR_REVIEW")
    assert "AT task-1.txt:2: must be 6\n  > 5\n" in crew.wait_note("brief-coder-1.2")
    assert crew.json("diff", "task-1")["comments"][0]["quote"] == "5"
    assert "task-1.txt:2 at " in crew.liza("diff", "task-1")
    assert "task-1.txt:2: must be 6" in crew.liza("task", "show", "task-1")
    assert "the crew waits for you: task-1 waits for your verdict" in (crew.notes / "up.log").read_text()
    crew.liza("verdict", "approve", "6 it is", "--task", "task-1")
    crew.wait_status("task-1", "MERGED")
    assert crew.git("show", "integration:task-1.txt") == "6"
    crew.liza("down")
    assert up.wait(30) == 0


def test_reviewers_leave_a_persons_task_and_status_names_it(crew: Crew) -> None:
    words = ("--desc", "d", "--done", "w", "--scope", "s", "--spec", "README.md", "--review", "human")
    crew.liza("task", "add", "--id", "mine", *words)
    crew.prepare("claim", "mine", "--agent", "coder-1")
    there = worktree_of(crew.root, "mine")
    commit_all(there, "work", {"mine.txt": "x\n"})
    assert "waits for your verdict" in crew.liza("submit", cwd=there)
    assert "a person reviews it" in crew.liza("claim", "--agent", "code-reviewer-1", code=1)
    assert alert(crew)["about"] == "mine"
    assert "a person" in crew.liza("task", "show", "mine")
