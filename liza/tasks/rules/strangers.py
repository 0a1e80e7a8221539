"""Work of authors who cannot write to the repository: what a person permits, and what a program may say about it.

Nothing of such work runs before the permission of a person, which names its whole commit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent, first_line
from liza.model.model import FINAL_STATUSES, State, Status, Submission, Task
from liza.model.paths import agent_of
from liza.model.statuses import describe_task
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import replace
from liza.text.quoting import sanitize

MAX_OPINION: Final = 4000  # characters
NO_BOX: Final = "what a stranger wrote runs only in a box, and this machine makes none"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_INSTRUCTING_NAMES: Final = frozenset(
    {
        ".mcp.json", ".gitattributes", ".gitmodules", ".envrc", ".pre-commit-config.yaml", "lefthook.yml",
        "lefthook.yaml", ".lefthook.yml", ".goosehints", ".cursorrules", ".windsurfrules", ".aider.conf.yml",
        "copilot-instructions.md", "opencode.json", "opencode.jsonc",
    }
)  # fmt: skip
"""Files, in any directory, that tell programs of agents or git what to do, beside the files with instructions."""
_INSTRUCTING_DIRECTORIES: Final = frozenset(
    {
        ".claude", ".codex", ".gemini", ".cursor", ".opencode", ".qwen", ".vibe", ".pi", ".amp", ".augment", ".goose",
        ".agents", ".husky", ".githooks", "hooks", ".vscode", ".devcontainer",
    }
)  # fmt: skip


def is_foreign(task: Task) -> bool:
    """Return whether the author of submitted work cannot write to the repository, or is unknown."""
    return task.submission is not None and task.submission.is_foreign


def lacks_permission(task: Task) -> bool:
    """Return whether nothing of the reviewed commit may run: it is foreign, and no person has permitted exactly it."""
    submission = task.submission
    return submission is not None and submission.is_foreign and submission.permitted != (task.review_commit or "-")


def permit_command(task: Task) -> str:
    """Return the command with which a person permits that the tests of the reviewed commit run."""
    return f"liza task permit {task.id} {task.review_commit}"


def permission_obstacle(task: Task) -> str | None:
    """Return why the tests of a commit may not run; None if they may."""
    if not lacks_permission(task):
        return None
    return f"a stranger wrote it, and no person permitted {(task.review_commit or '')[:12]} to run"


def refuse_unpermitted(task: Task) -> None:
    """Raise Refused if nothing of the reviewed commit may run."""
    why = permission_obstacle(task)
    if why:
        raise Refused(f"{task.id} is not tested: {why}", permit_command(task))


def describe_review(task: Task) -> str:
    """Return what a person who reviews foreign work should know, as the end of a clause; empty for other work."""
    if not is_foreign(task):
        return ""
    permission = "; nothing of it runs before you permit it" if lacks_permission(task) else "; you permitted its tests"
    why = "" if task.submission is None else task.submission.no_opinion
    return f", which a stranger wrote{permission}" + (f"; no program reviewed it: {why}" if why else "")


def permit(task: Task, commit: str) -> Task:
    """Permit that the tests of exactly this commit run, in a box without network. Raises Refused, UsageError."""
    task_id = task.id
    if task.submission is None or not task.submission.is_foreign:
        message = f"{task_id} needs no permission: no stranger wrote it"
        raise Refused(message, f"liza task show {task_id}")
    if task.status in FINAL_STATUSES or task.review_commit is None:
        message = f"{describe_task(task_id, task.status)}: there is nothing to permit"
        raise Refused(message, f"liza task show {task_id}")
    if _COMMIT.fullmatch(commit) is None:
        message = f"{commit!r} is not the whole id of a commit: 40 or 64 digits of 0-9 and a-f are expected"
        raise UsageError(message, f"liza diff {task_id}; {permit_command(task)}")
    if commit != task.review_commit:
        message = f"{commit[:12]} is not the submitted commit of {task_id}, which is {task.review_commit[:12]}"
        raise Refused(message, f"liza diff {task_id}")
    return replace(task, submission=replace(task.submission, permitted=commit))


def clear_foreign(state: State, merged: Task) -> State:
    """Let work be its author's that was a stranger's only because it is built on exactly what was merged now."""
    for upper in state.tasks:
        submission = upper.submission
        if submission is None or not submission.is_foreign or submission.request or upper.status in FINAL_STATUSES:
            continue
        lower = filter(None, map(state.task, upper.depends_on))
        is_on_others = any(is_foreign(task) and task.status not in FINAL_STATUSES for task in lower)
        if merged.id in upper.depends_on and upper.base_commit == merged.review_commit and not is_on_others:
            upper = replace(upper, submission=replace(submission, is_foreign=False))
            state = clear_foreign(state.with_task(upper), upper)
    return state


def wants_opinion(task: Task) -> bool:
    """Return whether a program that runs nothing may read the work and write what it thinks of it."""
    submission = task.submission
    return (
        submission is not None
        and submission.is_foreign
        and task.status is Status.READY_FOR_REVIEW
        and not submission.opinion
        and not submission.no_opinion
    )


def record_opinion(state: State, task_id: str, run: str, text: str, now: datetime) -> State:
    """Record what a program wrote about the commit, and end its review. No change if ``run`` does not hold it."""
    task = state.task(task_id)
    if task is None or task.review_run != run or task.submission is None:
        return state
    opinion = sanitize(text).strip()
    opinion = opinion if len(opinion) <= MAX_OPINION else f"{opinion[:MAX_OPINION]} …"
    return state.with_task(_end(task, run, now, "it wrote an opinion", replace(task.submission, opinion=opinion)))


def end_without_opinion(state: State, task_id: str, run: str, reason: str, now: datetime) -> State:
    """Record why a program wrote no opinion. No other one tries it, and the person's review goes on all the same."""
    task = state.task(task_id)
    if task is None or task.review_run != run or task.submission is None:
        return state
    why = first_line(sanitize(reason)) or "it wrote nothing"
    return state.with_task(_end(task, run, now, why, replace(task.submission, no_opinion=why)))


def _end(task: Task, run: str, now: datetime, detail: str, submission: Submission) -> Task:
    invocation = Invocation(now=now, by=agent_of(run), run=run, detail=detail)
    over = {"reviewing_by": None, "review_run": None, "review_lease_expires": None}
    return apply_verb(task, HistoryEvent.RELEASE_REVIEW, invocation, submission=submission, **over)


def select_instructing(paths: Iterable[str], instructions: Collection[str]) -> tuple[str, ...]:
    """Return the paths of files that tell agents, their programs or git what to do. ``instructions``: names of files
    that programs read as instructions."""
    names = {name.rpartition("/")[2].lower() for name in instructions} | _INSTRUCTING_NAMES
    return tuple(path for path in paths if _is_instructing(path, names))


def _is_instructing(path: str, names: Collection[str]) -> bool:
    *directories, name = path.lower().split("/")
    return name in names or not _INSTRUCTING_DIRECTORIES.isdisjoint(directories)
