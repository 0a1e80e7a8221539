"""Draft tasks, and the spec documents that they wait for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from liza.crew.crew import Crew
from liza.model.derived import is_incomplete
from liza.model.model import Clock, State, Status, Task
from liza.model.narration import LIZA
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog, picking
from liza.tasks.rules.backlog import LIZA_SPECS, MissingField
from liza.tasks.rules.picking import MissingParts


def find_incomplete_drafts(crew: Crew, state: State) -> dict[str, MissingParts]:
    """Missing parts of each DRAFT task, by task id. Raises GitFailed."""
    tasks = [task for task in state.tasks if task.status is Status.DRAFT]
    if not tasks:
        return {}
    specs = find_existing_specs(crew, [task.spec_ref for task in tasks])
    return {task.id: find_missing_parts(crew, state, task, specs) for task in tasks}


def find_missing_parts(crew: Crew, state: State, task: Task, specs: frozenset[str]) -> MissingParts:
    """Missing parts of one DRAFT task; ``specs`` are the documents that exist. Raises GitFailed."""
    missing = backlog.find_missing(state, task, specs)
    if not missing:
        return MissingParts((), "liza up")
    sentences = tuple(map(str, missing))
    if any(isinstance(part, MissingField) for part in missing):
        return MissingParts(sentences, f"liza task edit {task.id} --help")
    return MissingParts(sentences, _spec_command(crew, task.spec_ref.partition("#")[0]))


def _spec_command(crew: Crew, spec: str) -> str:
    """Command that makes a document visible to agents. Raises GitFailed."""
    name = shlex.quote(spec)
    exists = (crew.paths.root / spec).is_file()
    if spec.startswith(LIZA_SPECS):
        return f'"${{EDITOR:-vi}}" {name}'
    if exists and crew.git.run("cat-file", "-e", f"HEAD:{spec}", codes=(0, 1, 128)).code == 0:
        return "liza sync"
    commit = f"git add {name} && git commit -m {shlex.quote(f'Add {spec}')} {name} && liza sync"
    return commit if exists else f'"${{EDITOR:-vi}}" {name} && {commit}'


def release_drafts(crew: Crew) -> tuple[str, ...]:
    """Release the drafts that are complete; return a line for each. Call this after each move of integration.

    Raises GitFailed, LockTimeout.
    """
    state = crew.board.read()
    if not any(is_incomplete(task) for task in state.tasks):
        return ()
    missing = find_incomplete_drafts(crew, state)
    if picking.release_complete_drafts(state, state, missing, _invocation(crew.clock)) is state:
        return ()
    with crew.change(LIZA, "ready") as tx:
        tx.state = picking.release_complete_drafts(tx.state, state, missing, _invocation(crew.clock))
    former_drafts = {task.id for task in tx.before.tasks if task.status is Status.DRAFT}
    released = [task for task in tx.state.tasks if task.id in former_drafts and task.status is Status.UNCLAIMED]
    branch = tx.state.config.integration_branch
    return tuple(f"{task.id} is not a draft any more: {_spec_message(task.spec_ref, branch)}" for task in released)


def _spec_message(spec: str, branch: str) -> str:
    return f"{spec} exists" if spec.startswith(LIZA_SPECS) else f"{spec} is committed on {branch}"


def _invocation(clock: Clock) -> Invocation:
    return Invocation(now=clock.now(), by=LIZA)


def find_existing_specs(crew: Crew, refs: Sequence[str]) -> frozenset[str]:
    """Return those of ``refs`` that exist at the tip of integration or below .liza/specs. The part after # is
    ignored."""
    branch = crew.board.read().config.integration_branch
    return frozenset(ref for ref in set(refs) if ref and _exists(crew, branch, ref.partition("#")[0]))


def _exists(crew: Crew, branch: str, path: str) -> bool:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts:
        return False
    if pure.is_relative_to(LIZA_SPECS):
        return (crew.paths.root / path).is_file()
    object_type = crew.git.run("cat-file", "-t", f"{branch}:{path}", codes=(0, 128))
    return object_type.stdout.strip() == b"blob"
