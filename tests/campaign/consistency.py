"""The judge of the campaigns: what must hold of a crew once nothing runs and ``liza doctor --fix`` was said.

Everything is read from scratch, with a YAML parser and with git, by none of the code that is judged. Each sentence
begins with what it is about (``board``, ``claim``, ``slot``, ``run``, ``journal``, ``history``, ``merge``).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.conftest import worktree_of

FINAL = ("MERGED", "SUPERSEDED", "ABANDONED")
TAKES_A_RUN = ("claim", "resume", "claim review")
RUN = re.compile(r"((?:planner|coder|code-reviewer)-[0-9]+)\.([0-9]+)")


@dataclass
class Found:
    """What lies there: the board as plain values, and each slot with its owner file and HEAD."""

    root: Path
    board: dict[str, Any]
    common: Path
    slots: dict[str, Slot] = field(default_factory=dict)

    @property
    def tasks(self) -> list[dict[str, Any]]:
        return self.board.get("tasks") or []


@dataclass(frozen=True)
class Slot:
    """A work tree of the repository: where it lies, its git directory, who has it, which branch it has."""

    path: Path
    admin: Path
    owner: dict[str, Any] | None
    head: str


def problems(root: Path) -> list[str]:
    """Every broken invariant as a sentence; an empty list for a crew in which all is well."""
    found = _look(root)
    rules = (_reservations, _claims, _owners, _links, _places, _locks, _agents, _runs, _board, _journal, _merges)
    return [sentence for rule in rules for sentence in rule(found)]


def commits_of_everyone(root: Path, shas: Iterable[str]) -> list[str]:
    """Those of the commits ``shas`` that no ref reaches any more."""
    reached = set(_git(root, "rev-list", "--all").split())
    return [sha for sha in shas if sha not in reached]


def _look(root: Path) -> Found:
    text = (root / ".liza" / "state.yaml").read_bytes()
    common = Path(_git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    found = Found(root, YAML(typ="safe").load(text), common)
    for admin in sorted((common / "worktrees").iterdir()) if (common / "worktrees").is_dir() else ():
        if (admin / "gitdir").is_file():
            path = Path((admin / "gitdir").read_text().strip()).parent
            found.slots[path.name] = Slot(path, admin, _owner(admin), _text(admin / "HEAD"))
    return found


def _place(root: Path) -> Path:
    return Path(json.loads(_text(root / ".liza" / "worktrees.json"))["place"])


def _owner(admin: Path) -> dict[str, Any] | None:
    text = _text(admin / "liza")
    return json.loads(text) if text else None


def _text(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def _reservations(found: Found) -> Iterator[str]:
    for task in found.tasks:
        if task.get("reservation"):
            yield f"claim: {task['id']} is still reserved as {task['reservation'].get('run')}"


def _claims(found: Found) -> Iterator[str]:
    """A claimed task has its slot, laid out whole."""
    for task in found.tasks:
        if task["status"] != "CLAIMED":
            continue
        name, task_id = task.get("worktree"), task["id"]
        slot = found.slots.get(name or "")
        if slot is None or not slot.path.is_dir():
            yield f"claim: {task_id} is CLAIMED and its slot {name} is no work tree that is there"
            continue
        owner = slot.owner or {}
        if (owner.get("task"), owner.get("run"), owner.get("done")) != (task_id, task.get("run"), True):
            yield f"claim: {task_id} is CLAIMED by {task.get('run')} and its slot {name} says {owner or 'nothing'}"
        if slot.head != f"ref: refs/heads/task/{task_id}":
            yield f"claim: {task_id} is CLAIMED and its slot {name} stands at {slot.head}"
        link = worktree_of(found.root, task_id)
        if not link.is_symlink() or link.resolve() != slot.path.resolve():
            yield f"claim: {task_id} is CLAIMED and tasks/{task_id} does not lead to its slot {name}"


def _owners(found: Found) -> Iterator[str]:
    """A slot and a task name each other, or the slot is nobody's."""
    named = defaultdict(list)
    for task in found.tasks:
        if task.get("worktree"):
            named[task["worktree"]].append(task["id"])
            if task["status"] in FINAL:
                yield f"slot: {task['id']} is {task['status']} and holds {task['worktree']}"
    for name, ids in named.items():
        if len(ids) > 1:
            yield f"slot: {name} is named by {' and '.join(ids)}"
    for name, slot in found.slots.items():
        whose = (slot.owner or {}).get("task")
        if whose not in (None, name) and whose not in named[name]:
            yield f"slot: {name} bears {whose} ({slot.owner}), which does not name it"
        if named[name] and whose not in (None, *named[name]):
            yield f"slot: {name} is named by {named[name][0]} and bears {whose}"


def _links(found: Found) -> Iterator[str]:
    place = _place(found.root) / "tasks"
    holds = {task["id"]: task.get("worktree") for task in found.tasks}
    for link in sorted(place.iterdir()) if place.is_dir() else ():
        if not link.is_symlink():
            continue
        target = str(link.readlink())
        if not holds.get(link.name) or target != f"../{holds[link.name]}":
            yield f"slot: tasks/{link.name} leads to {target}, and that task names {holds.get(link.name)}"


def _places(found: Found) -> Iterator[str]:
    """A task's branch is checked out once, where its task is, or nowhere."""
    at = defaultdict(list)
    for name, slot in found.slots.items():
        if slot.head.startswith("ref: refs/heads/task/"):
            at[slot.head.removeprefix("ref: refs/heads/task/")].append(name)
    main = _text(found.common / "HEAD")
    if main.startswith("ref: refs/heads/task/"):
        at[main.removeprefix("ref: refs/heads/task/")].append("the checkout")
    holds = {task["id"]: task.get("worktree") for task in found.tasks}
    for task_id, names in at.items():
        if len(names) > 1:
            yield f"slot: task/{task_id} is checked out in {' and '.join(names)}"
        for name in names:
            if holds.get(task_id) != name:
                yield f"slot: {name} has task/{task_id} checked out, and that task names {holds.get(task_id)}"
    branches = _git(found.root, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/task/").split()
    begun = {task["id"] for task in found.tasks if task.get("base_commit")}
    for task_id in branches:
        if task_id not in begun:
            yield f"claim: there is a branch task/{task_id}, and that task was never claimed"


def _locks(found: Found) -> Iterator[str]:
    for name, slot in found.slots.items():
        if _text(slot.admin / "locked") == "initializing":
            yield f"slot: {name} is half made: its work tree is locked 'initializing'"
        for lock in sorted(slot.admin.rglob("*.lock")):
            yield f"slot: {name} is blocked by {lock.relative_to(found.common)}"
        for left in sorted(slot.admin.glob("liza.*")):
            yield f"slot: {name} has {left.name}, half of an owner file, beside it"
    place = _place(found.root)
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name not in (*found.slots, ".liza-worktrees.json", "tasks"):
            yield f"slot: {path} is there and no work tree of the repository"
    for lock in [*found.common.glob("*.lock"), *(found.common / "refs").rglob("*.lock")]:
        yield f"slot: git is blocked by {lock.relative_to(found.common)}"


def _agents(found: Found) -> Iterator[str]:
    holds = defaultdict(list)
    for task in found.tasks:
        if task["status"] == "CLAIMED":
            holds[task.get("assigned_to")].append(task["id"])
        if task.get("reviewing_by"):
            holds[task["reviewing_by"]].append(f"the review of {task['id']}")
        if task.get("reservation"):
            holds[task["reservation"].get("agent")].append(f"a reservation of {task['id']}")
    planner = RUN.fullmatch(str((found.board.get("planning") or {}).get("run")))
    if planner:
        holds[planner.group(1)].append("the planning")
    for agent, things in holds.items():
        if len(things) > 1:
            yield f"claim: {agent} holds {' and '.join(things)}"


def _runs(found: Found) -> Iterator[str]:
    """Each run was taken once, and the counters know of each."""
    taken = Counter(
        event.get("run")
        for task in found.tasks
        for event in task.get("history") or []
        if event.get("event") in TAKES_A_RUN and event.get("run")
    )
    for run, times in taken.items():
        if times > 1:
            yield f"run: {run} was taken {times} times"
    agents = found.board.get("agents") or {}
    for run in sorted(set(taken) | set(_seen(found))):
        agent, number = RUN.fullmatch(run).groups()  # type: ignore[union-attr]
        counted = (agents.get(agent) or {}).get("runs", 0)
        if int(number) > counted:
            yield f"run: {run} was there, and the board has counted {counted} runs of {agent}"


def _seen(found: Found) -> Iterator[str]:
    """Every run that the board, a slot, a run directory or a salvage names."""
    texts = [str(value) for task in found.tasks for value in _leaves(task)]
    texts += [str((slot.owner or {}).get("run")) for slot in found.slots.values()]
    texts += [path.name for path in (found.root / ".liza" / "run").glob("*/*")]
    refs = _git(found.root, "for-each-ref", "--format=%(refname)", "refs/liza/salvage/").split()
    texts += [re.sub(r"(\+[0-9]+|-nested.*)$", "", ref.rpartition("/")[2]) for ref in refs]
    yield from (text for text in texts if RUN.fullmatch(text))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _board(found: Found) -> Iterator[str]:
    text = (found.root / ".liza" / "state.yaml").read_bytes()
    seal = json.loads((found.root / ".liza" / "tx" / "seal").read_text())
    digest = hashlib.sha256(text).hexdigest()
    if digest != seal["after"]:
        yield f"board: its sha256 is {digest[:12]}, and the seal says {seal['after'][:12]}"
    for task_id, times in Counter(task["id"] for task in found.tasks).items():
        if times > 1:
            yield f"board: there are {times} tasks {task_id}"


def _journal(found: Found) -> Iterator[str]:
    """One revision after the other, each once, the last one that of the board; the history has the same.

    A last line without an end was torn by a crash; the next writer makes a comment of it.
    """
    whole, _, _torn = (found.root / ".liza" / "log.yaml").read_bytes().rpartition(b"\n")
    records = [json.loads(line[2:]) for line in whole.split(b"\n") if line.startswith(b"- ")]
    came = [one["revision"] for one in records if one.get("revision")]
    voided = Counter(one["void"] for one in records if one.get("void") is not None)
    stands = list((Counter(came) - voided).elements())
    for revision, times in Counter(stands).items():
        if times > 1:
            yield f"journal: revision {revision} is there {times} times"
    for first, second in pairwise(came):
        if second != first + 1 and not (second == first and voided[first]):
            yield f"journal: after revision {first} comes {second}"
    if stands and stands[-1] != found.board["revision"]:
        yield f"journal: it ends with revision {stands[-1]}, and the board has {found.board['revision']}"
    yield from _history(found, sorted(set(stands)))


def _history(found: Found, journal: Sequence[int]) -> Iterator[str]:
    form = "--format=%(trailers:key=Liza-Revision,valueonly,separator=)"
    history = [int(line) for line in _git(found.root, "log", "--reverse", form, "refs/liza/blackboard").split()]
    for first, second in pairwise(history):
        if second <= first:
            yield f"history: after revision {first} comes {second}"
    lacking = [number for number in journal if number not in history]
    if lacking:
        yield f"history: it lacks the revisions {lacking}"
    # Below the first of this journal are the revisions of an earlier crew.
    more = [number for number in history if number not in journal and number >= min(journal, default=0)]
    if more:
        yield f"history: it has the revisions {more}, which the journal does not have"
    board = _git(found.root, "cat-file", "blob", "refs/liza/blackboard:state.yaml")
    if YAML(typ="safe").load(board).get("revision") != (history or [None])[-1]:
        yield f"history: its newest board is not the one of revision {(history or [None])[-1]}"


def _merges(found: Found) -> Iterator[str]:
    branch = (found.board.get("config") or {}).get("integration_branch") or "integration"
    first_parents = _git(found.root, "log", "--first-parent", "--format=%s", f"refs/heads/{branch}").splitlines()
    inside = set(_git(found.root, "rev-list", f"refs/heads/{branch}").split())
    # The merges of an epic's tasks are behind the second parent of its landing, or on its branch.
    behind = _git(found.root, "log", "--merges", "--format=%s", f"refs/heads/{branch}").splitlines()
    under_way = set()
    for task in found.tasks:
        subjects = behind if task.get("landed") else first_parents
        merging, times = task.get("merging"), sum(line.startswith(f"Merge {task['id']}:") for line in subjects)
        if merging:
            under_way.add(task["id"])
            if not merging.get("waiting"):
                yield f"merge: {task['id']} is being merged as {merging.get('candidate')}, and nobody merges"
        is_undone = bool(task.get("undo")) and task["status"] != "MERGED"
        undone = sum(line.startswith(f"Undo {task['id']}:") for line in first_parents)
        if undone != is_undone:
            yield f"merge: {task['id']} is {task['status']} and was undone {undone} times"
        if times != (task["status"] == "MERGED" or is_undone):
            yield f"merge: {task['id']} is {task['status']} and was merged {times} times"
        if task["status"] == "MERGED" and task.get("merge_commit") not in inside:
            yield f"merge: {task['id']} was merged as {task.get('merge_commit')}, which is not in {branch}"
    refs = _git(found.root, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/liza/candidates/").split()
    for task_id in refs:
        if task_id not in under_way:
            yield f"merge: there is a candidate of {task_id}, which is not being merged"
