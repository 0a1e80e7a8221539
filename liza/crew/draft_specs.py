"""Drafts and the documents that they wait for."""

from __future__ import annotations

import shlex

from liza.crew.crew import Crew
from liza.crew.spec_files import find_existing_specs
from liza.rules.model import State, Status, Task
from liza.rules.reports.narration import LIZA
from liza.rules.tasks import backlog, drafts
from liza.rules.tasks.backlog import LIZA_SPECS
from liza.rules.tasks.drafts import MissingParts
from liza.rules.transitions import Invocation


def find_incomplete_drafts(crew: Crew, state: State) -> dict[str, MissingParts]:
    """What each DRAFT lacks now. Raises GitFailed."""
    found = [task for task in state.tasks if task.status is Status.DRAFT]
    if not found:
        return {}
    specs = find_existing_specs(crew, [task.spec_ref for task in found])
    return {task.id: find_missing_parts(crew, state, task, specs) for task in found}


def find_missing_parts(crew: Crew, state: State, task: Task, specs: frozenset[str]) -> MissingParts:
    """What one DRAFT lacks, where ``specs`` are the documents that are there. Raises GitFailed."""
    missing = backlog.find_missing(state, task, specs)
    if not missing:
        return MissingParts((), "liza up")
    if any(not one.startswith("spec ") for one in missing):
        return MissingParts(missing, f"liza task edit {task.id} --help")
    return MissingParts(missing, _spec_command(crew, task.spec_ref.partition("#")[0]))


def _spec_command(crew: Crew, spec: str) -> str:
    """The command that brings a document to where agents see it. Raises GitFailed."""
    name = shlex.quote(spec)
    there = (crew.paths.root / spec).is_file()
    if spec.startswith(LIZA_SPECS):
        return f'"${{EDITOR:-vi}}" {name}'
    if there and crew.git.run("cat-file", "-e", f"HEAD:{spec}", codes=(0, 1, 128)).code == 0:
        return "liza sync"
    commit = f"git add {name} && git commit -m {shlex.quote(f'Add {spec}')} {name} && liza sync"
    return commit if there else f'"${{EDITOR:-vi}}" {name} && {commit}'


def release_drafts(crew: Crew) -> tuple[str, ...]:
    """Free the drafts that lack nothing any more; a line about each. To be called whenever integration moved.

    Raises GitFailed, LockTimeout.
    """
    state = crew.board.read()
    if not any(drafts.is_incomplete(task) for task in state.tasks):
        return ()
    now = find_incomplete_drafts(crew, state)
    if drafts.release_complete_drafts(state, state, now, _invocation(crew)) is state:
        return ()
    with crew.change(LIZA, "ready") as tx:
        tx.state = drafts.release_complete_drafts(tx.state, state, now, _invocation(crew))
    before = {task.id for task in tx.before.tasks if task.status is Status.DRAFT}
    freed = [task for task in tx.state.tasks if task.id in before and task.status is Status.UNCLAIMED]
    branch = tx.state.config.integration_branch
    return tuple(f"{task.id} is no draft any more: {_spec_message(task.spec_ref, branch)}" for task in freed)


def _spec_message(spec: str, branch: str) -> str:
    return f"{spec} is there" if spec.startswith(LIZA_SPECS) else f"{spec} is committed on {branch}"


def _invocation(crew: Crew) -> Invocation:
    return Invocation(now=crew.clock.now(), by=LIZA)
