"""Drafts and the documents that they wait for."""

from __future__ import annotations

import shlex

from liza.crew.crew import Crew
from liza.crew.spec_files import existing
from liza.rules.model import State, Status, Task
from liza.rules.reports.narration import LIZA
from liza.rules.tasks import backlog, drafts
from liza.rules.tasks.backlog import OWN_SPECS
from liza.rules.tasks.drafts import Lack
from liza.rules.transitions import Said


def lacks(crew: Crew, state: State) -> dict[str, Lack]:
    """What each DRAFT lacks now. Raises GitFailed."""
    found = [task for task in state.tasks if task.status is Status.DRAFT]
    if not found:
        return {}
    specs = existing(crew, [task.spec_ref for task in found])
    return {task.id: lack(crew, state, task, specs) for task in found}


def lack(crew: Crew, state: State, task: Task, specs: frozenset[str]) -> Lack:
    """What one DRAFT lacks, where ``specs`` are the documents that are there. Raises GitFailed."""
    missing = backlog.lacking(state, task, specs)
    if not missing:
        return Lack((), "liza up")
    if any(not one.startswith("spec ") for one in missing):
        return Lack(missing, f"liza task edit {task.id} --help")
    return Lack(missing, _supply(crew, task.spec_ref.partition("#")[0]))


def _supply(crew: Crew, spec: str) -> str:
    """The command that brings a document to where agents see it. Raises GitFailed."""
    name = shlex.quote(spec)
    there = (crew.paths.root / spec).is_file()
    if spec.startswith(OWN_SPECS):
        return f'"${{EDITOR:-vi}}" {name}'
    if there and crew.git.run("cat-file", "-e", f"HEAD:{spec}", codes=(0, 1, 128)).code == 0:
        return "liza sync"
    commit = f"git add {name} && git commit -m {shlex.quote(f'Add {spec}')} {name} && liza sync"
    return commit if there else f'"${{EDITOR:-vi}}" {name} && {commit}'


def reconsider(crew: Crew) -> tuple[str, ...]:
    """Free the drafts that lack nothing any more; a line about each. To be called whenever integration moved.

    Raises GitFailed, LockTimeout.
    """
    state = crew.board.read()
    if not any(drafts.is_incomplete(task) for task in state.tasks):
        return ()
    now = lacks(crew, state)
    if drafts.ripen(state, state, now, _said(crew)) is state:
        return ()
    with crew.change(LIZA, "ready") as tx:
        tx.state = drafts.ripen(tx.state, state, now, _said(crew))
    before = {task.id for task in tx.before.tasks if task.status is Status.DRAFT}
    freed = [task for task in tx.state.tasks if task.id in before and task.status is Status.UNCLAIMED]
    branch = tx.state.config.integration_branch
    return tuple(f"{task.id} is no draft any more: {_there(task.spec_ref, branch)}" for task in freed)


def _there(spec: str, branch: str) -> str:
    return f"{spec} is there" if spec.startswith(OWN_SPECS) else f"{spec} is committed on {branch}"


def _said(crew: Crew) -> Said:
    return Said(now=crew.clock.now(), by=LIZA)
