"""Edits of the board from outside: detect truncation, and merge edits of an old copy."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from liza.board.text import parse
from liza.board.text.document import Document
from liza.model.model import Agent, State, Task
from liza.model.value_classes import FrozenStruct

_HUMAN_FIELDS: Final = frozenset(
    ("description", "priority", "created", "spec_ref", "done_when", "scope", "depends_on", "max_iterations")
) | {"rescope_reason", "review"}
"""Fields of a task that people write. In all others the later value of the crew wins."""

_SECTION: Final = re.compile(r"^[\"']?([a-z_]+)[\"']?[ \t]*:", re.MULTILINE)
_FLOW_ROOT: Final = re.compile(r"(?:\s|#.*\n|%.*\n|---)*\{")
_FLOW_SECTION: Final = re.compile(r"[^:]*:[ \t]*[\[{]")
_OPTIONAL_SECTIONS: Final = frozenset(
    ("planning", "discovered", "handoff", "anomalies", "human_notes", "spec_changes", "archived", "pull_request")
)
"""Sections that a board may lack at first. An old copy without them is not truncated."""


def is_truncated(newest: Document, edited: Document) -> bool:
    """Return whether ``edited`` lacks data at its end, as after an interrupted write of ``newest``.

    The same data in another form is complete, and so is a mapping in braces, such as JSON: it would not parse without
    its end.
    """
    if newest.text.startswith(edited.text):
        return newest.state != edited.state or _content_lines(newest.text) != _content_lines(edited.text)
    if newest.state == edited.state or _FLOW_ROOT.match(edited.text):
        return False
    # The texts may differ in renewed leases, so compare the names of sections and entries.
    edited_sections = _list_sections(edited)
    optional = _OPTIONAL_SECTIONS if edited.state.revision < newest.state.revision else frozenset()
    newest_sections = [
        section for section in _list_sections(newest) if section in edited_sections or section not in optional
    ]
    if not newest_sections or edited_sections != newest_sections[: len(edited_sections)]:
        return False
    if len(edited_sections) < len(newest_sections):
        return True
    return _is_section_short(edited_sections[-1], newest, edited)


def _content_lines(text: str) -> list[str]:
    """Return the lines of a text that are neither blank nor a comment."""
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def _list_sections(board: Document) -> list[str]:
    """Return the names of the sections with a value, in the order of the text."""
    if not board.is_whole:
        return list(dict.fromkeys(part.section for part in board.parts if part.section))
    return list(parse.parse_text(board.text))


def _is_section_short(name: str, newest: Document, edited: Document) -> bool:
    """Return whether the last section lacks entries at its end, or the end of its last entry."""
    if _FLOW_SECTION.match(_section_text(edited, name)):
        return False
    edited_names, newest_names = _entry_names(edited, name), _entry_names(newest, name)
    if len(edited_names) < len(newest_names):
        return edited_names == newest_names[: len(edited_names)]
    if edited.is_whole or newest.is_whole:
        texts = _section_text(edited, name), _section_text(newest, name)
    else:
        # The last entry alone: a section may be large.
        texts = edited.parts[-1].text, next(part.text for part in reversed(newest.parts) if part.section == name)
    return _lacks_end(*map(parse.parse_text, texts))


def _lacks_end(edited: Any, newest: Any) -> bool:
    """Return whether a plain value ends before another one, and is equal to it up to there."""
    if isinstance(edited, str) and isinstance(newest, str):
        return edited != newest and newest.startswith(edited)
    if isinstance(edited, dict) and isinstance(newest, dict):
        edited, newest = [list(pair) for pair in edited.items()], [list(pair) for pair in newest.items()]
    if not isinstance(edited, list) or not isinstance(newest, list) or len(edited) > len(newest):
        return False
    if edited == newest[: len(edited)]:
        return len(edited) < len(newest)
    return edited[:-1] == newest[: len(edited) - 1] and _lacks_end(edited[-1], newest[len(edited) - 1])


def _entry_names(board: Document, section: str) -> list[Any]:
    """Return the ids of the entries of a section; entries without an id themselves."""
    value = getattr(board.state, section, None)
    if isinstance(value, dict):
        return list(value)
    return [getattr(entry, "id", None) or entry for entry in value] if isinstance(value, tuple) else []


def _section_text(board: Document, name: str) -> str:
    """Return the lines of a section, up to the next one; empty if its name does not begin a line."""
    starts = [(match[1], match.start()) for match in _SECTION.finditer(board.text)]
    ends = [*(start for _, start in starts[1:]), len(board.text)]
    texts = (board.text[start:end] for (section, start), end in zip(starts, ends, strict=True) if section == name)
    return next(texts, "")


def merge_edit(
    base: State | None, newest: State, edited: State, named: frozenset[str], archived: frozenset[str] = frozenset()
) -> State:
    """Return ``edited``, an edit of a copy of ``base``, merged with the changes from ``base`` to ``newest``.

    ``named`` are the tasks with journal records since the base. They are used if ``base`` is not kept any more.
    ``archived`` are the tasks that left the board since then: they stay away, unless the edit changed them.
    """
    old = {task.id: task for task in base.tasks} if base else {}
    now = {task.id: task for task in newest.tasks}
    gone = {task.id for task in edited.tasks if task.id in archived - now.keys() and old.get(task.id, task) == task}
    tasks = [
        _merge_task(old.get(task.id), now.get(task.id), task, task.id in named)
        for task in edited.tasks
        if task.id not in gone
    ]
    present = {task.id for task in edited.tasks}
    later = [
        task
        for task in newest.tasks
        if task.id not in present and (old.get(task.id) != task if base else task.id in named)
    ]
    return msgspec.structs.replace(
        edited,
        tasks=(*tasks, *later),
        agents=_merge_agents(base, newest, edited),
        planning=_merge_value(base and base.planning, newest.planning, edited.planning),
        circuit_breaker=_merge_value(base and base.circuit_breaker, newest.circuit_breaker, edited.circuit_breaker),
        sprint=_merge_value(base and base.sprint, newest.sprint, edited.sprint),
        archived=_merge_value(base and base.archived, newest.archived, edited.archived),
        pull_request=_merge_value(base and base.pull_request, newest.pull_request, edited.pull_request),
        goal=_merge_value(base.goal, newest.goal, edited.goal) if base else edited.goal,
        config=_merge_value(base.config, newest.config, edited.config) if base else edited.config,
        handoff=_merge_table(base.handoff if base else None, newest.handoff, edited.handoff),
        **{
            name: _merge_rows(getattr(base, name) if base else (), getattr(newest, name), getattr(edited, name))
            for name in _ROW_SECTIONS
        },
    )


_ROW_SECTIONS: Final = ("discovered", "anomalies", "human_notes", "spec_changes")


def _merge_value(base: Any, newest: Any, edited: Any) -> Any:
    """Return the changed value; that of the crew if both sides changed it or the base is not known."""
    return edited if base is not None and newest == base else newest


def _merge_task(base: Task | None, newest: Task | None, edited: Task, named: bool) -> Task:
    if newest is None or (base is None and not named):
        return edited
    chosen: dict[str, Any] = {}
    for name in Task.__struct_fields__:
        base_value = getattr(base, name) if base is not None else None
        newest_value, edited_value = getattr(newest, name), getattr(edited, name)
        if base is None:
            chosen[name] = edited_value if name in _HUMAN_FIELDS else newest_value
        elif edited_value == base_value:
            chosen[name] = newest_value
        else:
            chosen[name] = edited_value if newest_value == base_value or name in _HUMAN_FIELDS else newest_value
    return Task(**chosen)


def _merge_agents(base: State | None, newest: State, edited: State) -> dict[str, Agent]:
    table = _merge_table(base.agents if base else None, newest.agents, edited.agents)
    return {
        name: msgspec.structs.replace(agent, runs=max(agent.runs, newest.agents[name].runs))
        if name in newest.agents
        else agent
        for name, agent in table.items()
    }


def _merge_table(base: dict[str, Any] | None, newest: dict[str, Any], edited: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in [*edited, *(key for key in newest if key not in edited)]:
        base_value = (base or {}).get(key)
        if key in edited and key in newest:
            merged[key] = _merge_value(base_value, newest[key], edited[key])
        elif key in edited:
            merged[key] = edited[key]
        elif base is None or newest[key] != base_value:
            merged[key] = newest[key]
    return merged


def _merge_rows(
    base: tuple[FrozenStruct, ...], newest: tuple[FrozenStruct, ...], edited: tuple[FrozenStruct, ...]
) -> tuple[FrozenStruct, ...]:
    """Merge rows, which the crew adds and resolves but never removes.

    A row that the crew changed since the base, in the same position, replaces its old text in the copy. Rows that the
    copy did not have are appended.
    """
    changed = [(was, now) for was, now in zip(base, newest, strict=False) if was != now and was not in newest]
    rows = tuple(next((now for was, now in changed if was == entry), entry) for entry in edited)
    return (*rows, *(entry for entry in newest if entry not in rows))


def restore_run_counters(newest: State, edited: State) -> State:
    """Return ``edited`` with no run counter lower than before: a run name must never be used twice."""
    agents = {
        name: msgspec.structs.replace(agent, runs=newest.agents[name].runs)
        if name in newest.agents and newest.agents[name].runs > agent.runs
        else agent
        for name, agent in edited.agents.items()
    }
    return edited if agents == edited.agents else msgspec.structs.replace(edited, agents=agents)
