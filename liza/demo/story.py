"""What happened on the board, told a line at a time. Pure: two boards and the journal between them in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from liza.board.journal import Record
from liza.rules.model import Event, State, Task

LONGEST = 96


@dataclass
class Story:
    """What was told already: how many events of each task, how many of the planner's decisions."""

    told: dict[str, int] = field(default_factory=dict)
    decisions: int = 0

    def tell(self, records: Iterable[Record], state: State) -> Iterator[tuple[str, str]]:
        """Who, and what, for everything that is new in ``state``; in the order of the journal, oldest first."""
        order = [record.task for record in records if record.task]
        added = [task for task in state.tasks if task.id not in self.told]
        if added:
            yield "planner-1", f"{len(added)} tasks: {', '.join(map(_with_needs, added))}"
            self.told.update({task.id: 1 for task in added})
        for name in order:
            yield from self._next_of(state, name, 1)
        for task in state.tasks:
            yield from self._next_of(state, task.id, len(task.history))
        for note in state.goal.alignment_history[self.decisions :]:
            yield note.event.rpartition(".")[0], f"decided: {note.summary}"
        self.decisions = len(state.goal.alignment_history)

    def _next_of(self, state: State, name: str, most: int) -> Iterator[tuple[str, str]]:
        task = state.task(name)
        if task is None:
            return
        start = self.told.get(name, 1)
        for place in range(start, min(start + most, len(task.history))):
            self.told[name] = place + 1
            said = line(task, place)
            if said is not None:
                yield said


def line(task: Task, place: int) -> tuple[str, str] | None:
    """Who, and what, for one event of a task's history; None for those that only a log wants."""
    event = task.history[place]
    who, detail = event.agent or "", short(event.detail or "")
    match event.event:
        case "claim":
            return who, f"{task.id}, try {_try(task.history[: place + 1])}"
        case "resume":
            return who, f"{task.id}, try {_try(task.history[: place + 1])}: goes on in the same worktree"
        case "crash":
            return who, f"{task.id} crashed: {detail}"
        case "handoff":
            return who, f"{task.id} handed over to a fresh session"
        case "reject" | "deadlock":
            return who, f"{task.id} rejected: {detail}"
        case "approve":
            return who, f"{task.id} approved"
        case "block":
            return who, f"{task.id} blocked: {detail}"
        case "unblock":
            return "you", f"{task.id} answered"
        case "merge":
            return "merged", f"{task.id} → integration {(event.commit or '')[:7]}, tests pass"
        case "merge failed":
            return "not merged", f"{task.id}: {detail}"
    return None


def short(text: str) -> str:
    """One line of at most LONGEST letters."""
    one = " ".join(text.split())
    return one if len(one) <= LONGEST else f"{one[: LONGEST - 1]}…"


def _with_needs(task: Task) -> str:
    return task.id + (f" (needs {', '.join(task.depends_on)})" if task.depends_on else "")


def _try(history: tuple[Event, ...]) -> int:
    """Tries since the beginning, or since a person's answer began anew."""
    names = [event.event for event in history]
    since = len(names) - names[::-1].index("unblock") if "unblock" in names else 0
    return sum(name in ("claim", "resume") for name in names[since:])
