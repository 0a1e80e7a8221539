"""What has to hold after the monkey is gone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

from liza.board.revision_texts import FULL_TEXT_INTERVAL
from liza.model.model import FINAL_STATUSES, State, Status
from liza.model.paths import HISTORY_REF
from tests.campaign.consistency import commits_of_everyone, problems
from tests.campaign.crew_run import World, lines
from tests.conftest import git
from tests.journeys.crews import history, processes_of


def losses(world: World, before: str) -> list[str]:
    """Everything that is wrong, as sentences. ``before`` is where the person's checkout stood."""
    state = world.crew.state()
    found = [one for one in problems(world.root) if not _own_doing(world, one)]
    found += lines(world, "violations")
    found += _tasks(state)
    found += _commits(world)
    found += _acknowledged(world, state)
    found += _edits(world, state)
    found += [f"still there: {words}" for _, words in processes_of(world.root)]
    found += _history(world)
    found += _checkout(world, before)
    found += _integration(world, state)
    return found


def _tasks(state: State) -> Iterator[str]:
    for task in state.tasks:
        blocked = task.status is Status.BLOCKED and task.blocked_reason
        if task.status not in FINAL_STATUSES and not blocked:
            yield f"{task.id} is {task.status} and nobody is at it"


def _commits(world: World) -> Iterator[str]:
    shas = {line for line in lines(world, "commits") if len(line) == 40}
    yield from (f"the commit {sha} of an agent is lost" for sha in commits_of_everyone(world.root, sorted(shas)))


def _acknowledged(world: World, state: State) -> Iterator[str]:
    said = {(task.id, event.run, event.event) for task in state.tasks for event in task.history}
    again = {"submit": "submit again", "reject": "deadlock"}
    for line in lines(world, "acknowledged"):
        task, run, event = line.split()
        if not {(task, run, event), (task, run, again.get(event, event))} & said:
            yield f"{event} of {run} on {task} was acknowledged and is on the board no more"


def _edits(world: World, state: State) -> Iterator[str]:
    messages = [note.message for note in state.human_notes]
    for text in world.noted:
        if messages.count(text) != 1:
            yield f"the note {text!r} is there {messages.count(text)} times"
    for task, text in world.described.items():
        found = state.task(task)
        if found is None or found.description != text:
            yield f"the description {text!r} was lost: {found.description if found else 'no task'!r}"


def _history(world: World) -> Iterator[str]:
    recorded = [revision for revision, *_ in history(world.crew)]
    if recorded != sorted(set(recorded)):
        yield f"the history does not ascend: {recorded}"
    wanted = _announced(world) - set(recorded)
    for revision in sorted(wanted):
        if revision not in world.unsaid and not _behind_a_hole(world, revision):
            yield f"revision {revision} is not in the history"


def _announced(world: World) -> set[int]:
    found: set[int] = set()
    for line in world.crew.paths.journal.read_text().splitlines():
        if line.startswith("- "):
            words = json.loads(line[2:])
            if "void" in words:
                found.discard(words["void"])
            else:
                found.add(words["revision"])
    return found


def _behind_a_hole(world: World, revision: int) -> bool:
    """Whether the monkey took out of the journal what this revision would have been put together from."""
    return any(gone <= revision < gone + FULL_TEXT_INTERVAL for gone in world.unsaid)


def _own_doing(world: World, problem: str) -> bool:
    """Whether all that a sentence names is missing because the monkey took it out of the journal."""
    numbers = {int(one) for one in re.findall(r"[0-9]+", problem)}
    if problem.startswith("journal: after revision"):
        first, second = sorted(numbers)
        return set(range(first + 1, second)) <= world.unsaid
    if problem.startswith("journal: it ends with revision"):
        return max(numbers) in world.unsaid
    if problem.startswith("history: it lacks"):
        return all(one in world.unsaid or _behind_a_hole(world, one) for one in numbers)
    if problem.startswith("history: it has"):
        # Taken out while a recorder had it in hand, it is in the history, and the next one knows of none.
        return numbers <= world.unsaid
    return False


def _checkout(world: World, before: str) -> Iterator[str]:
    here = git(world.root, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
    status = git(world.root, "status", "--porcelain")
    if here != before:
        yield f"the person's checkout moved: {before} → {here}"
    if sorted(status.splitlines()) != [" M README.md", "?? mine.txt"]:
        yield f"the person's files were touched: {status}"


def _integration(world: World, state: State) -> Iterator[str]:
    green = set(lines(world, "green"))
    # Inside a batch there are commits at which integration never was: its tip is tested for all of them.
    moves = git(world.root, "log", "--walk-reflogs", "--format=%H", "integration").split()
    for sha in {git(world.root, "rev-parse", "integration"), *moves}:
        if sha not in green:
            yield f"integration stood at {sha}, which was not tested"
    names = set(git(world.root, "ls-tree", "--name-only", "integration").split())
    merges = git(world.root, "log", "--first-parent", "--format=%s", "integration").splitlines()
    for task in state.tasks:
        if task.status is not Status.MERGED:
            continue
        if f"{task.id}.txt" not in names:
            yield f"{task.id} is MERGED and its work is not in integration"
        times = sum(line.startswith(f"Merge {task.id}:") for line in merges)
        if times != 1:
            yield f"{task.id} was merged {times} times"
        inside = subprocess.run(
            ["git", "merge-base", "--is-ancestor", str(task.merge_commit), "integration"], cwd=world.root, check=False
        )
        if inside.returncode:
            yield f"the merge commit of {task.id} is not in integration"


def recorded(world: World) -> int:
    """How many revisions the history holds."""
    return int(git(world.root, "rev-list", "--count", HISTORY_REF))
