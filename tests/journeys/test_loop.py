"""From a task to a merge: with supervisors and scripted agents, and by hand."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import APPROVE, BIN, WORK, Crew, history

SUBJECT = re.compile(r"([\w-]+: )?([a-z ]+|(new|[A-Z_]+) → [A-Z_]+) \([\w:.-]+\)")
FEW = 15


def person(crew: Crew) -> tuple[object, ...]:
    """Everything of the person's own checkout that a crew has to leave alone."""
    return (
        crew.git("rev-parse", "HEAD", "main"),
        crew.git("symbolic-ref", "HEAD"),
        (crew.root / ".git" / "index").read_bytes(),
        crew.git("status", "--porcelain"),
        (crew.root / "README.md").read_text(),
        sorted(path.name for path in crew.root.iterdir()),
    )


def test_coder_and_reviewer_merge_a_task_without_changing_the_checkout(crew: Crew) -> None:
    (crew.root / "mine.txt").write_text("not committed\n")
    crew.git("add", "mine.txt")
    crew.git("status")
    before = person(crew)
    crew.add("task-1")
    program = crew.script("agent", f'case "$LIZA_RUN" in coder-*) {WORK};; *) {APPROVE};; esac\n')
    supervisors = [crew.agent("coder-1", program), crew.agent("code-reviewer-1", program)]

    crew.wait_status("task-1", "MERGED")
    assert [supervisor.stop() for supervisor in supervisors] == [0, 0]

    merges = crew.git("log", "--first-parent", "--format=%s", "integration").splitlines()
    assert merges == ["Merge task-1: Write task-1", "first"]
    assert crew.git("show", "integration:task-1.txt") == "task-1 by coder-1.1"
    assert person(crew) == before
    assert crew.git("for-each-ref", "refs/liza/salvage") == ""
    crew.wait_ended()
    crew.liza("validate")
    the_history_has_one_small_commit_a_revision_that_says_what_happened(crew)


def the_history_has_one_small_commit_a_revision_that_says_what_happened(crew: Crew) -> None:
    found = history(crew)
    assert [revision for revision, *_ in found] == list(range(1, crew.state().revision + 1))
    assert [subject for _, subject, *_ in found if not SUBJECT.fullmatch(subject)] == []
    statuses = [subject for _, subject, *_ in found if " → " in subject]
    assert statuses[1:] == [
        "task-1: UNCLAIMED → CLAIMED (coder-1.1)",
        "task-1: CLAIMED → READY_FOR_REVIEW (coder-1.1)",
        "task-1: READY_FOR_REVIEW → APPROVED (code-reviewer-1.1)",
        statuses[-1],
    ]
    assert statuses[-1] == "task-1: APPROVED → MERGED (liza)"
    large = [(subject, added, gone) for _, subject, added, gone in found[1:] if added > FEW or gone > FEW]
    assert large == []
    assert "+    status: MERGED" in crew.git("log", "-p", "-5", "liza/blackboard")
    assert "blackboard" not in crew.git("branch", "--all")


def test_the_loop_by_hand_works_without_any_program(crew: Crew) -> None:
    crew.add("task-1")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    there = worktree_of(crew.root, "task-1")
    commit_all(there, "by hand", {"task-1.txt": "by hand\n"})
    assert "unchanged" not in crew.liza("submit", cwd=there)
    assert "unchanged" in crew.liza("submit", cwd=there)

    step = crew.liza("claim", "task-1", "--agent", "code-reviewer-1")
    place = re.search(r"next: cd (\S+)", step)
    assert place is not None
    seen = Path(place[1])
    assert (seen / "task-1.txt").read_text() == "by hand\n"
    crew.liza("verdict", "approve", "read it", cwd=seen)
    assert crew.status("task-1") == "APPROVED"
    crew.liza("merge")

    task = crew.task("task-1")
    assert (task.status, task.merge_commit) == ("MERGED", crew.git("rev-parse", "integration"))
    assert task.tested is False
    assert not there.exists()
    assert crew.git("log", "--first-parent", "--format=%s", "-1", "integration") == "Merge task-1: Write task-1"
    assert crew.git("status", "--porcelain") == ""
    assert [revision for revision, *_ in history(crew)] == list(range(1, crew.state().revision + 1))


def test_a_ready_line_never_follows_the_sessions_work(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    supervisor = crew.agent("coder-1", crew.script("agent.sh", WORK))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    crew.wait_status("task-2", "READY_FOR_REVIEW")
    assert supervisor.stop() == 0
    said = supervisor.said()
    for run in ("coder-1.1", "coder-1.2"):
        told = said.partition(f"working as {run}")[2].partition("working as")[0]
        assert "in review" in told
        assert f"{run} ready after" not in told.partition("in review")[2]


def test_a_hook_sentinel_is_reported_at_once_with_its_time(crew: Crew) -> None:
    crew.configure(poll_interval=3600)
    crew.add("task-1")
    first, last = crew.gate("first"), crew.gate("last")
    hook = """printf '{"session_id": "s"}' | liza hook claude SessionStart > /dev/null"""
    text = f"echo x > $NOTES/up\ncat {first}\n{hook}\ncat {last}\n"
    supervisor = crew.agent("coder-1", crew.script("agent.sh", text, ready=False))
    crew.wait_note("up")
    supervisor.process.send_signal(signal.SIGSTOP)
    crew.open_gate("first")
    sentinel = crew.paths.run("coder-1.1") / "ready"
    crew.wait(lambda _: sentinel.exists(), "the sentinel")
    os.utime(sentinel, (0, 0))
    supervisor.process.send_signal(signal.SIGCONT)
    supervisor.wait_said(r"coder-1\.1 ready after 0\.0 s")
    assert supervisor.stop() == 0


def test_commands_of_brief_and_hints_work_with_a_reset_path(crew: Crew, usual_path: str) -> None:
    # As a login shell does: /etc/profile sets PATH anew, and what a session was given there is gone.
    words = f"""
        PATH={usual_path}; export PATH
        command -v liza && exit 9
        eval "$(sed -n 's/^.*FIRST run:  *//p' AGENTS.md)" > "$NOTES/ready"
        submit=$(sed -n 's/.*commit everything, then  *//p' AGENTS.md)
        eval "$submit" 2> "$NOTES/refused" && exit 9
        echo x > task-1.txt; git add task-1.txt; git commit -q -m one
        eval "$submit"
        """
    crew.add("task-1")
    supervisor = crew.agent("coder-1", crew.script("agent.sh", words, ready=False))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert "TASK task-1" in (crew.notes / "ready").read_text()
    refused = (crew.notes / "refused").read_text()
    assert 'next: git add -A && git commit -m "…"\n' in refused
    assert f'{BIN / "liza"} block "why" --ask' in refused
    assert supervisor.stop() == 0
