"""Which tasks and agents a filter lists. What waits for a person is listed in any case."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from liza.model.errors import UsageError
from liza.model.statuses import AgentWord, TaskWord
from liza.text.formats import did_you_mean
from liza.ui.rules.lines import clean
from liza.ui.rules.picture_view import Filter, PictureView
from liza.ui.rules.snapshot import ScreenName
from liza.view.rules.structs import AgentLine, Picture, TaskRow

NEEDS_PERSON = (AgentWord.WAITS_FOR_YOU, AgentWord.STUCK)
"""Words of agents that no filter and no narrow terminal hides."""
_LISTS_TASKS = (ScreenName.NOW, ScreenName.BOARD, ScreenName.QUEUE)


def waiting_subjects(picture: Picture) -> frozenset[str]:
    """Return the tasks and agents that wait for a person."""
    return frozenset(alarm.about for alarm in picture.waits)


def lists_task(wanted: Filter, row: TaskRow, waiting: Collection[str]) -> bool:
    """Return whether a task is listed."""
    if wanted == Filter() or row.task.id in waiting:
        return True
    has_word = not wanted.words or row.word in wanted.words
    has_agent = not wanted.agent or wanted.agent in (row.task.assigned_to, row.task.reviewing_by)
    return has_word and has_agent and _has_text(wanted, (row.task.id, row.task.description, row.reason, row.owner))


def lists_agent(wanted: Filter, line: AgentLine, waiting: Collection[str]) -> bool:
    """Return whether an agent is listed."""
    row = line.row
    if wanted == Filter() or row.id in waiting or line.word in NEEDS_PERSON:
        return True
    has_word = not wanted.words or line.word in wanted.words
    has_agent = not wanted.agent or wanted.agent == row.id
    return has_word and has_agent and _has_text(wanted, (row.id, row.current_task, row.program, line.reason))


def _has_text(wanted: Filter, texts: Iterable[str | None]) -> bool:
    return not wanted.text or any(wanted.text.lower() in (text or "").lower() for text in texts)


def count_hidden(picture: Picture, view: PictureView) -> int:
    """Return how many rows of the screen the filter hides."""
    if view.filter == Filter():
        return 0
    waiting = waiting_subjects(picture)
    if view.screen is ScreenName.AGENTS:
        return sum(not lists_agent(view.filter, line, waiting) for line in picture.agents)
    if view.screen in _LISTS_TASKS:
        queued = {row.id for row in picture.queue}
        rows = [row for row in picture.tasks if view.screen is not ScreenName.QUEUE or row.task.id in queued]
        return sum(not lists_task(view.filter, row, waiting) for row in rows)
    return 0


def parse_filter(text: str, earlier: Filter, agents: Collection[str]) -> Filter:
    """Return the filter for words such as ``to fix, in review coder-1``; empty ends it. Raises UsageError."""
    rest = " ".join(text.lower().replace(",", " ").split())
    words: list[str] = []
    agent = ""
    names = sorted((*{str(word) for word in (*TaskWord, *AgentWord)}, *agents), key=len, reverse=True)
    while rest:
        name = next((name for name in names if rest == name or rest.startswith(f"{name} ")), None)
        if name is None:
            word = rest.split()[0]
            raise UsageError(f"{word!r} is neither a status nor an agent{did_you_mean(word, names)}", "liza status")
        rest = rest[len(name) :].strip()
        if name in agents:
            agent = name
        else:
            words.append(name)
    return Filter(tuple(words), agent, earlier.text)


def describe_filter(wanted: Filter) -> str:
    """Return what a filter lists: `to fix, of coder-1, with "pdf"`."""
    parts = [*wanted.words, *([f"of {wanted.agent}"] if wanted.agent else [])]
    return ", ".join([*parts, *([f'with "{clean(wanted.text)}"'] if wanted.text else [])])
