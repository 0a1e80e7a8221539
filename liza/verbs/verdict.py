"""verdict approve · verdict reject: decide a review."""

from __future__ import annotations

import os

from liza.crew.caller import identify_run, require_person, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.crew.run_end import record_run_result
from liza.rules.errors import Refused, UsageError
from liza.rules.model import State
from liza.rules.paths import role_of
from liza.rules.tasks import claims, reviews


def verdict(crew: Crew, word: str, reason: str, *, task_id: str | None = None, commit: str | None = None) -> Result:
    """Approve or reject a commit: a reviewer's run that of its brief, a person that of the named task.

    Raises Refused, NotOwner, UsageError.
    """
    if word not in ("approve", "reject"):
        raise UsageError(
            f"{word!r} is not a verdict: expected approve or reject", 'liza verdict approve "what you ran and saw"'
        )
    if not reason.strip():
        raise UsageError(
            "the verdict has no reason: say what you ran and saw, or what is wrong", f'liza verdict {word} "…"'
        )
    if task_id is not None and not os.environ.get("LIZA_RUN"):
        return _by_person(crew, word, reason, task_id, commit)
    return _by_run(crew, word, reason, task_id)


def _by_run(crew: Crew, word: str, reason: str, task_id: str | None) -> Result:
    caller = identify_run(crew)
    if role_of(caller.agent) != "code-reviewer":
        raise Refused(f"{caller.agent} is not a code-reviewer; agents do not review their own work", "liza ready")
    task = require_task(caller)
    if task_id not in (None, task):
        raise Refused(f"{caller.run} reviews {task}, not {task_id}", "liza ready")
    record = crew.run_dir(caller.run).read_record()
    commit = record.commit if record and record.commit else crew.worktrees.head_commit(caller.agent)
    with crew.change(caller.run, word, task) as tx:
        judge = reviews.approve if word == "approve" else reviews.reject
        tx.state = judge(tx.state, task, caller.run, commit, crew.clock.now(), reason)
    record_run_result(crew, caller.run, "0")
    manual_step = f"liza merge {task}" if word == "approve" else f"liza task show {task}"
    return make_result(tx.before, tx.state, task, "stop now" if crew.run_dir(caller.run).exists() else manual_step)


def _full_commit(crew: Crew, commit: str) -> str:
    result = crew.git.run(
        "rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{commit}}", codes=(0, 1, 128)
    )
    if result.code != 0:
        raise UsageError(f"{commit!r} is not a commit of this repository", "liza diff ID shows the commit to review")
    return result.stdout.decode().strip()


def _by_person(crew: Crew, word: str, reason: str, task_id: str, commit: str | None) -> Result:
    by = require_person(crew, planner=False)
    state = crew.board.read()
    if state.task(task_id) is None:
        from liza.crew.archive import archived_tasks  # not needed for a task of the board

        archived_tasks.refuse_archived(crew, state, [task_id])
    named_commit = commit or claims.get_task(state, task_id).review_commit or ""
    commit_id = _full_commit(crew, named_commit) if named_commit else ""
    with crew.change(by, word, task_id) as tx:
        judge = reviews.approve if word == "approve" else reviews.reject
        tx.state = judge(tx.state, task_id, by, commit_id, crew.clock.now(), reason)
    return make_result(tx.before, tx.state, task_id, _next_step(crew, tx.state, word, task_id))


def _next_step(crew: Crew, state: State, word: str, task_id: str) -> str:
    """Return what happens after a person's verdict: a running crew goes on by itself."""
    coder = claims.get_task(state, task_id).assigned_to
    if word == "approve":
        is_running = any(crew.is_supervised(agent) for agent in state.agents)
        return "liza status: the crew merges it" if is_running else f"liza merge {task_id}"
    if coder is not None and crew.is_supervised(coder):
        return f"liza status: {coder} continues it"
    return f"liza claim {task_id} --agent {coder}"
