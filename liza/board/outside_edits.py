"""Edits of the board from outside: diff them, detect truncation, and merge edits of an old copy."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from liza.board.text.document import Document, Part
from liza.rules.lazy_pattern import lazy_pattern
from liza.rules.model import Agent, FrozenStruct, State, Task

_VOLATILE_LINE: Final = lazy_pattern(r"\s*(?:- )?(?:lease_expires|review_lease_expires|heartbeat|revision):")
_MAX_DIFF: Final = 64 << 10  # characters
_HUMAN_FIELDS: Final = frozenset(
    ("description", "priority", "created", "spec_ref", "done_when", "scope", "depends_on", "max_iterations")
) | {"rescope_reason", "review"}
"""Fields of a task that people write. In all others the later value of the crew wins."""

_SECTION: Final = lazy_pattern(r"^([a-z_]+):", re.MULTILINE)
_OPTIONAL_SECTIONS: Final = frozenset(
    ("planning", "discovered", "handoff", "anomalies", "human_notes", "spec_changes", "archived", "pull_request")
)
"""Sections that a board may lack at first. An old copy without them is not truncated."""


def is_truncated(newest: Document, edited: Document) -> bool:
    """Return whether ``edited`` lacks entries at its end, as after an interrupted write of ``newest``."""
    if newest.text.startswith(edited.text):
        return len(edited.text) < len(newest.text)
    # The texts may differ in renewed leases. A cut directly after a section name leaves a text that cannot be split,
    # so compare the section names before the parts.
    if _is_missing_sections(newest, edited):
        return True
    if newest.is_whole or edited.is_whole:
        return False
    names = [(part.section, part.key) for part in edited.parts]
    all_names = [(part.section, part.key) for part in newest.parts]
    return len(names) < len(all_names) and names == all_names[: len(names)]


def is_old_copy_truncated(base: Document | None, newest: Document, edited: Document) -> bool:
    """Return whether ``edited``, an edit of an older board, lacks its end. ``base`` is that board if it is still kept.

    Without ``base`` compare with ``newest``: this detects missing sections, and missing entries of the last one.
    """
    if base is not None:
        return is_truncated(base, edited)
    if _is_missing_sections(newest, edited):
        return True
    if newest.is_whole or edited.is_whole:
        return newest.text.endswith("\n") and not edited.text.endswith("\n")
    return _is_last_section_short([part for part in edited.parts if part.section == edited.parts[-1].section], newest)


def _is_missing_sections(newest: Document, edited: Document) -> bool:
    """Return whether whole sections are missing at the end, or the end of the last one."""
    edited_sections = _SECTION.findall(edited.text)
    newest_sections = [
        section
        for section in _SECTION.findall(newest.text)
        if section in edited_sections or section not in _OPTIONAL_SECTIONS
    ]
    if edited_sections != newest_sections[: len(edited_sections)] or not newest_sections:
        return False
    if len(edited_sections) < len(newest_sections):
        return True
    edited_text = _section_text(edited.text, edited_sections[-1])
    newest_text = _section_text(newest.text, edited_sections[-1])
    return newest_text.startswith(edited_text) and len(edited_text) < len(newest_text)


def _section_text(text: str, name: str) -> str:
    """Return the lines of a section, up to the next one."""
    starts = [(match[1], match.start()) for match in _SECTION.finditer(text)]
    ends = [*(start for _, start in starts[1:]), len(text)]
    return next(text[start:end] for (section, start), end in zip(starts, ends, strict=True) if section == name)


def _is_last_section_short(edited_parts: list[Part], newest: Document) -> bool:
    """Return whether the last section ends before or inside an entry of the newest board."""
    newest_parts = [part for part in newest.parts if part.section == edited_parts[-1].section]
    same_keys = [part.key for part in edited_parts] == [part.key for part in newest_parts[: len(edited_parts)]]
    if len(edited_parts) > len(newest_parts) or not same_keys:
        return False
    edited_text, newest_text = edited_parts[-1].text, newest_parts[len(edited_parts) - 1].text
    return len(edited_parts) < len(newest_parts) or (
        len(edited_text) < len(newest_text) and newest_text.startswith(edited_text)
    )


def diff_texts(newest: str, edited: str) -> str:
    """Return a unified diff without lease times, at most 64 K characters."""
    old, new = _stable_lines(newest), _stable_lines(edited)
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, start - 3)
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    end = max(0, end - 3)
    import difflib

    lines = difflib.unified_diff(
        old[start : len(old) - end], new[start : len(new) - end], "before", "after", n=2, lineterm=""
    )
    text = "\n".join(lines)
    return text if len(text) <= _MAX_DIFF else text[:_MAX_DIFF] + "\n… the rest is in history"


def _stable_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _VOLATILE_LINE.match(line)]


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
