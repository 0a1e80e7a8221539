"""Edits from outside: what changed, whether the end is torn off, and what an old copy turned back."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import msgspec

from liza.board.text.document import Document, Part
from liza.rules.model import Agent, FrozenStruct, State, Task

_VOLATILE_LINE: Final = re.compile(r"\s*(?:- )?(?:lease_expires|review_lease_expires|heartbeat|revision):")
_MAX_DIFF: Final = 64 << 10
_HUMAN_FIELDS: Final = frozenset(
    ("description", "priority", "created", "spec_ref", "done_when", "scope", "depends_on", "max_iterations")
) | {"rescope_reason"}
"""Fields of a task that people write; in all others the crew's later word counts."""


_SECTION: Final = re.compile(r"^([a-z_]+):", re.MULTILINE)
_OPTIONAL_SECTIONS: Final = frozenset(("planning", "discovered", "handoff", "anomalies", "human_notes", "spec_changes"))
"""Sections that a board may be without until something happens; from these nothing is lost in an old copy."""


def is_truncated(known: Document, found: Document) -> bool:
    """Whether entries are missing at the end, as a write that was cut off leaves it."""
    if known.text.startswith(found.text):
        return len(found.text) < len(known.text)
    # Leases may have been renewed since, and a cut right behind a name leaves a text that does not come apart.
    if _is_missing_sections(known, found):
        return True
    if known.is_whole or found.is_whole:
        return False
    names = [(part.section, part.key) for part in found.parts]
    all_names = [(part.section, part.key) for part in known.parts]
    return len(names) < len(all_names) and names == all_names[: len(names)]


def is_old_copy_truncated(base: Document | None, known: Document, found: Document) -> bool:
    """Whether ``found``, made on an earlier board, lacks its end. ``base`` is that board, where it is still kept.

    Without it only what is missing behind all that is there can tell: whole sections, or entries of the last one.
    """
    if base is not None:
        return is_truncated(base, found)
    if _is_missing_sections(known, found):
        return True
    if known.is_whole or found.is_whole:
        return known.text.endswith("\n") and not found.text.endswith("\n")
    return _is_last_section_short([one for one in found.parts if one.section == found.parts[-1].section], known)


def _is_missing_sections(known: Document, found: Document) -> bool:
    """Whether whole sections are missing at the end, or the rest of the last one."""
    here = _SECTION.findall(found.text)
    there = [one for one in _SECTION.findall(known.text) if one in here or one not in _OPTIONAL_SECTIONS]
    if here != there[: len(here)] or not there:
        return False
    if len(here) < len(there):
        return True
    end, whole = _section_text(found.text, here[-1]), _section_text(known.text, here[-1])
    return whole.startswith(end) and len(end) < len(whole)


def _section_text(text: str, name: str) -> str:
    """The lines of a section, to the next one."""
    begins = [(found[1], found.start()) for found in _SECTION.finditer(text)]
    ends = [*(start for _, start in begins[1:]), len(text)]
    return next(text[start:end] for (one, start), end in zip(begins, ends, strict=True) if one == name)


def _is_last_section_short(last: list[Part], known: Document) -> bool:
    """Whether the last section stops before, or within, an entry that the newest board has there."""
    there = [part for part in known.parts if part.section == last[-1].section]
    if len(last) > len(there) or [one.key for one in last] != [one.key for one in there[: len(last)]]:
        return False
    end, whole = last[-1].text, there[len(last) - 1].text
    return len(last) < len(there) or (len(end) < len(whole) and whole.startswith(end))


def diff_texts(known: str, found: str) -> str:
    """The lines that differ, leases left out, as a unified diff; at most 64 KB of it."""
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
    """``found``, made on a copy of ``base``, with what happened on the board since put on top.

    ``named`` are the tasks that the journal names since then; it serves where the base is not kept any more.
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
    """One value: the side that changed it; the crew's where both did, or where the base is not known."""
    return found if base is not None and known == base else known


def _merge_task(base: Task | None, known: Task | None, found: Task, named: bool) -> Task:
    if known is None or (base is None and not named):
        return found
    chosen: dict[str, Any] = {}
    for name in Task.__struct_fields__:
        was = getattr(base, name) if base is not None else None
        mine, theirs = getattr(known, name), getattr(found, name)
        if base is None:
            chosen[name] = theirs if name in _HUMAN_FIELDS else mine
        elif theirs == was:
            chosen[name] = mine
        else:
            chosen[name] = theirs if mine == was or name in _HUMAN_FIELDS else mine
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
    made: dict[str, Any] = {}
    for key in [*found, *(key for key in known if key not in found)]:
        was = (base or {}).get(key)
        if key in found and key in known:
            made[key] = _merge_value(was, known[key], found[key])
        elif key in found:
            made[key] = found[key]
        elif base is None or known[key] != was:
            made[key] = known[key]
    return made


def _merge_rows(known: tuple[FrozenStruct, ...], found: tuple[FrozenStruct, ...]) -> tuple[FrozenStruct, ...]:
    """Rows only grow: what the copy did not have yet comes back behind what it has."""
    return (*found, *(entry for entry in known if entry not in found))


def restore_run_counters(known: State, found: State) -> State:
    """``found`` with no agent's counter of runs turned back: a run names every leftover, once."""
    agents = {
        name: msgspec.structs.replace(agent, runs=known.agents[name].runs)
        if name in known.agents and known.agents[name].runs > agent.runs
        else agent
        for name, agent in found.agents.items()
    }
    return found if agents == found.agents else msgspec.structs.replace(found, agents=agents)
