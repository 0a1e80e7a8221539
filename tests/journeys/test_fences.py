"""Nobody judges their own work, and no run says anything about what is not its own any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import Crew

TRY = """\
try() {
    name=$1; shift
    code=0; "$@" > "$NOTES/try.out" 2>&1 || code=$?
    printf '%s: %s %s\\n' "$name" "$code" "$(tr '\\n' ' ' < "$NOTES/try.out")" >> "$NOTES/tries"
}
"""
BARE = "env -u LIZA_RUN -u LIZA_TASK -u LIZA_AGENT_ID"


def tries(crew: Crew) -> dict[str, tuple[int, str]]:
    """What the scripted agent tried: exit code and what it was told."""
    found = {}
    for line in crew.wait_note("tries").splitlines():
        name, _, rest = line.partition(": ")
        code, _, said = rest.partition(" ")
        found[name] = (int(code), said)
    return found


def test_a_coder_approves_nothing_in_any_environment(crew: Crew) -> None:
    # It goes on trying after it has submitted.
    crew.configure(grace=60)
    crew.add("task-0", "task-1")
    crew.liza("claim", "task-0", "--agent", "coder-9")
    other = worktree_of(crew.root, "task-0")
    commit_all(other, "theirs", {"task-0.txt": "theirs\n"})
    crew.liza("submit", cwd=other)
    crew.liza("claim", "task-0", "--agent", "code-reviewer-9")
    (crew.notes.parent / "another-name").symlink_to(crew.root)
    judge = f"{BARE} liza verdict approve mine --task task-1"
    program = crew.script(
        "coder",
        TRY
        + f"""\
        liza status --json | grep '"revision"' > "$NOTES/before"
        try verdict liza verdict approve mine
        try verdict-of-a-task liza verdict approve mine --task task-1
        try no-run {judge}
        try nothing-of-liza env -u LIZA_ROOT {judge}
        try another-root env LIZA_ROOT="{crew.notes.parent / "another-name"}" {judge}
        try outside sh -c 'cd "$LIZA_ROOT" && {judge}'
        try a-session-of-its-own setsid -w {judge}
        try as-a-reviewer env LIZA_RUN=code-reviewer-9.1 LIZA_TASK=task-0 liza verdict approve mine
        cd "$LIZA_ROOT.worktrees/code-reviewer-9"
        try in-the-reviewers-worktree {BARE} liza verdict approve mine
        cd "$OLDPWD"
        try claim-a-review {BARE} liza claim task-1 --agent code-reviewer-8
        try merge liza merge
        try add {BARE} liza task add --id task-3 --desc x
        try lock {BARE} liza lock -- sh -c ': > .liza/state.yaml'
        try supervise {BARE} liza-agent code-reviewer-8 --program script:/bin/true
        try down {BARE} liza down
        liza status --json | grep '"revision"' > "$NOTES/after"
        try submit liza submit
        echo work > "$LIZA_TASK.txt"
        try dirty liza submit
        git add -A
        git commit -q -m work
        try clean liza submit
        try again liza submit
        """,
    )
    crew.agent("coder-1", program).wait_said("in review")
    crew.wait(lambda _: "again: " in (crew.notes / "tries").read_text(), "the last try")
    found = tries(crew)
    assert {name: code for name, (code, _) in found.items() if code != 1} == {"clean": 0, "again": 0}, found
    assert "agents do not review their own work" in found["verdict"][1]
    assert "from inside the session coder-1.1" in found["no-run"][1]
    assert "in the name of code-reviewer-9.1" in found["as-a-reviewer"][1]
    assert "no commit beyond the base" in found["submit"][1]
    assert "not committed: task-1.txt" in found["dirty"][1]
    assert "unchanged" in found["again"][1]
    assert (crew.notes / "before").read_text() == (crew.notes / "after").read_text()
    assert crew.status("task-0") == "READY_FOR_REVIEW"


def as_run(run: str, task: str, crew: Crew) -> dict[str, str]:
    return {"LIZA_RUN": run, "LIZA_TASK": task, "LIZA_ROOT": str(crew.root)}


def refused_all(crew: Crew, run: str, task: str) -> None:
    """Every verb of a run that a task does not name any more is refused, and the board stays as it was."""
    before = crew.paths.state.read_bytes()
    for words in (("submit",), ("block", "why", "--ask", "q?"), ("handoff", "done", "--next", "more"), ("ready",)):
        told = crew.liza(*words, code=1, **as_run(run, task, crew))
        assert "no longer own" in told, (words, told)
        assert "Stop at once" in told
    crew.liza("heartbeat", code=1, **as_run(run, task, crew))
    assert crew.paths.state.read_bytes() == before


def commit(crew: Crew, task: str, text: str) -> Path:
    there = worktree_of(crew.root, task)
    commit_all(there, text, {f"{task}.txt": text})
    return there


@pytest.mark.campaign
def test_a_released_or_resumed_task_refuses_its_old_run(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    commit(crew, "task-1", "first")
    crew.liza("task", "release", "task-1")
    refused_all(crew, "coder-1.1", "task-1")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    assert "no longer own" in crew.liza("submit", code=1, **as_run("coder-1.1", "task-1", crew))
    assert (worktree_of(crew.root, "task-1") / "task-1.txt").read_text() == "first"

    crew.gate("go")
    program = crew.script(
        "coder",
        """\
        case "$LIZA_RUN" in
        *.1) liza handoff "half of it" --next "the other half" ;;
        *) echo "$LIZA_RUN" > "$NOTES/second"; read line < "$NOTES/go" ;;
        esac
        """,
    )
    crew.agent("coder-2", program)
    assert crew.wait_note("second") == "coder-2.2\n"
    assert "unchanged" in crew.liza("handoff", "x", "--next", "y", **as_run("coder-2.1", "task-2", crew))
    before = crew.state().revision
    for words in (("submit",), ("block", "why", "--ask", "q?"), ("ready",)):
        assert "no longer own" in crew.liza(*words, code=1, **as_run("coder-2.1", "task-2", crew))
    assert crew.state().revision == before


def test_the_commit_that_was_rejected_is_not_submitted_again(crew: Crew) -> None:
    crew.add("task-1")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    there = commit(crew, "task-1", "first")
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "reject", "rounding is untested", "--task", "task-1")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    assert "is the commit that was sent back" in crew.liza("submit", code=1, cwd=there)
    commit(crew, "task-1", "second")
    crew.liza("submit", cwd=there)
    assert crew.task("task-1").review_commit == crew.git("rev-parse", "HEAD", cwd=there)


def test_a_refused_claim_gives_the_reason_and_registers_no_agent(crew: Crew) -> None:
    crew.add("task-1")
    told = crew.liza("claim", "task-1", "--agent", "code-reviewer-1", code=1)
    assert "it is to do" in told
    assert crew.liza("claim", "--agent", "coder-x", code=2)
    assert crew.liza("claim", "../x", "--agent", "coder-1", code=2)
    assert "there is no task" in crew.liza("claim", "task-9", "--agent", "coder-1", code=1)
    assert crew.state().agents == {}


def test_commands_of_a_run_are_refused_outside_a_run(crew: Crew) -> None:
    crew.add("task-1")
    before = crew.paths.state.read_bytes()
    for words in (("submit",), ("ready",), ("block", "w", "--ask", "q"), ("exit", "0"), ("heartbeat",)):
        assert "neither a session nor a claimed worktree" in crew.liza(*words, code=1)
    assert crew.paths.state.read_bytes() == before
