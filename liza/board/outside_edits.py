"""Edits of the board from outside: diff them, detect truncation, and merge edits of an old copy."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import msgspec

from liza.board.text.document import Document, Part
from liza.rules.model import Agent, FrozenStruct, State, Task

_VOLATILE_LINE: Final = re.compile(r"\s*(?:- )?(?:lease_expires|review_lease_expires|heartbeat|revision):")
_MAX_DIFF: Final = 64 << 10  # characters
_HUMAN_FIELDS: Final = frozenset(
    ("description", "priority", "created", "spec_ref", "done_when", "scope", "depends_on", "max_iterations")
) | {"rescope_reason"}
"""Fields of a task that people write. In all others the later value of the crew wins."""

_SECTION: Final = re.compile(r"^([a-z_]+):", re.MULTILINE)
_OPTIONAL_SECTIONS: Final = frozenset(("planning", "discovered", "handoff", "anomalies", "human_notes", "spec_changes"))
"""Sections that a board may lack at first. An old copy without them is not truncated."""


def is_truncated(known: Document, found: Document) -> bool:
    """Return whether ``found`` lacks entries at its end, as after an interrupted write of ``known``."""
    if known.text.startswith(found.text):
        return len(found.text) < len(known.text)
    # The texts may differ in renewed leases. A cut directly after a section name leaves a text that cannot be split,
    # so compare the section names before the parts.
    if _is_missing_sections(known, found):
        return True
    if known.is_whole or found.is_whole:
        return False
    names = [(part.section, part.key) for part in found.parts]
    all_names = [(part.section, part.key) for part in known.parts]
    return len(names) < len(all_names) and names == all_names[: len(names)]


def is_old_copy_truncated(base: Document | None, known: Document, found: Document) -> bool:
    """Return whether ``found``, an edit of an older board, lacks its end. ``base`` is that board if it is still kept.

    Without ``base`` compare with ``known``: this detects missing sections, and missing entries of the last one.
    """
    if base is not None:
        return is_truncated(base, found)
    if _is_missing_sections(known, found):
        return True
    if known.is_whole or found.is_whole:
        return known.text.endswith("\n") and not found.text.endswith("\n")
    return _is_last_section_short([part for part in found.parts if part.section == found.parts[-1].section], known)


def _is_missing_sections(known: Document, found: Document) -> bool:
    """Return whether whole sections are missing at the end, or the end of the last one."""
    found_sections = _SECTION.findall(found.text)
    known_sections = [
        section
        for section in _SECTION.findall(known.text)
        if section in found_sections or section not in _OPTIONAL_SECTIONS
    ]
    if found_sections != known_sections[: len(found_sections)] or not known_sections:
        return False
    if len(found_sections) < len(known_sections):
        return True
    found_text = _section_text(found.text, found_sections[-1])
    known_text = _section_text(known.text, found_sections[-1])
    return known_text.startswith(found_text) and len(found_text) < len(known_text)


def _section_text(text: str, name: str) -> str:
    """Return the lines of a section, up to the next one."""
    starts = [(match[1], match.start()) for match in _SECTION.finditer(text)]
    ends = [*(start for _, start in starts[1:]), len(text)]
    return next(text[start:end] for (section, start), end in zip(starts, ends, strict=True) if section == name)


def _is_last_section_short(found_parts: list[Part], known: Document) -> bool:
    """Return whether the last section ends before or inside an entry of the newest board."""
    known_parts = [part for part in known.parts if part.section == found_parts[-1].section]
    same_keys = [part.key for part in found_parts] == [part.key for part in known_parts[: len(found_parts)]]
    if len(found_parts) > len(known_parts) or not same_keys:
        return False
    found_text, known_text = found_parts[-1].text, known_parts[len(found_parts) - 1].text
    return len(found_parts) < len(known_parts) or (
        len(found_text) < len(known_text) and known_text.startswith(found_text)
    )


def diff_texts(known: str, found: str) -> str:
    """Return a unified diff without lease times, at most 64 K characters."""
    old, new = _stable_lines(known), _stable_lines(found)
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, start - 3)
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    end = max(0, end - 3)
    lines = difflib.unified_diff(
        old[start : len(old) - end], new[start : len(new) - end], "before", "after", n=2, lineterm=""
    )
    text = "\n".join(lines)
    return text if len(text) <= _MAX_DIFF else text[:_MAX_DIFF] + "\n… the rest is in history"


def _stable_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _VOLATILE_LINE.match(line)]


def merge_edit(base: State | None, known: State, found: State, named: frozenset[str]) -> State:
    """Return ``found``, an edit of a copy of ``base``, merged with the changes from ``base`` to ``known``.

    ``named`` are the tasks with journal records since the base. They are used if ``base`` is not kept any more.
    """
    old = {task.id: task for task in base.tasks} if base else {}
    now = {task.id: task for task in known.tasks}
    tasks = [_merge_task(old.get(task.id), now.get(task.id), task, task.id in named) for task in found.tasks]
    present = {task.id for task in found.tasks}
    later = [
        task
        for task in known.tasks
        if task.id not in present and (old.get(task.id) != task if base else task.id in named)
    ]
    return msgspec.structs.replace(
        found,
        tasks=(*tasks, *later),
        agents=_merge_agents(base, known, found),
        planning=_merge_value(base and base.planning, known.planning, found.planning),
        circuit_breaker=_merge_value(base and base.circuit_breaker, known.circuit_breaker, found.circuit_breaker),
        sprint=_merge_value(base and base.sprint, known.sprint, found.sprint),
        goal=_merge_value(base.goal, known.goal, found.goal) if base else found.goal,
        config=_merge_value(base.config, known.config, found.config) if base else found.config,
        handoff=_merge_table(base.handoff if base else None, known.handoff, found.handoff),
        **{name: _merge_rows(getattr(known, name), getattr(found, name)) for name in _ROW_SECTIONS},
    )


_ROW_SECTIONS: Final = ("discovered", "anomalies", "human_notes", "spec_changes")


def _merge_value(base: Any, known: Any, found: Any) -> Any:
    """Return the changed value; that of the crew if both sides changed it or the base is not known."""
    return found if base is not None and known == base else known


def _merge_task(base: Task | None, known: Task | None, found: Task, named: bool) -> Task:
    if known is None or (base is None and not named):
        return found
    chosen: dict[str, Any] = {}
    for name in Task.__struct_fields__:
        base_value = getattr(base, name) if base is not None else None
        known_value, found_value = getattr(known, name), getattr(found, name)
        if base is None:
            chosen[name] = found_value if name in _HUMAN_FIELDS else known_value
        elif found_value == base_value:
            chosen[name] = known_value
        else:
            chosen[name] = found_value if known_value == base_value or name in _HUMAN_FIELDS else known_value
    return Task(**chosen)


def _merge_agents(base: State | None, known: State, found: State) -> dict[str, Agent]:
    table = _merge_table(base.agents if base else None, known.agents, found.agents)
    return {
        name: msgspec.structs.replace(agent, runs=max(agent.runs, known.agents[name].runs))
        if name in known.agents
        else agent
        for name, agent in table.items()
    }


def _merge_table(base: dict[str, Any] | None, known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in [*found, *(key for key in known if key not in found)]:
        base_value = (base or {}).get(key)
        if key in found and key in known:
            merged[key] = _merge_value(base_value, known[key], found[key])
        elif key in found:
            merged[key] = found[key]
        elif base is None or known[key] != base_value:
            merged[key] = known[key]
    return merged


def _merge_rows(known: tuple[FrozenStruct, ...], found: tuple[FrozenStruct, ...]) -> tuple[FrozenStruct, ...]:
    """Rows are only added: append the rows that the copy did not have."""
    return (*found, *(entry for entry in known if entry not in found))


def restore_run_counters(known: State, found: State) -> State:
    """Return ``found`` with no run counter lower than before: a run name must never be used twice."""
    agents = {
        name: msgspec.structs.replace(agent, runs=known.agents[name].runs)
        if name in known.agents and known.agents[name].runs > agent.runs
        else agent
        for name, agent in found.agents.items()
    }
    return found if agents == found.agents else msgspec.structs.replace(found, agents=agents)
