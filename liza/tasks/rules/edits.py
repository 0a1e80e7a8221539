"""Edits of the board by hand: which changes a session may make, and the goal as a text for an editor. Pure.

A session hands in a whole text. Only values count: comments, order and everything that the session did not change stay
as they are on the board.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from liza.breaker.rules import board_reports
from liza.model import setting_limits
from liza.model.errors import LizaError, Refused, UsageError
from liza.model.model import AlignmentNote, Anomaly, Discovery, Goal, Handoff, State
from liza.model.paths import agent_of
from liza.model.value_classes import Value, replace
from liza.tasks.rules import claims, leases
from liza.text.formats import format_time

EDITABLE: Final = {
    "agents": "heartbeat, lease_expires and context_percent of its own entry",
    "handoff": "the entry of its own task",
    "discovered": "new entries of its own",
    "anomalies": "new entries of its own, at the end",
}
"""The sections that a session may change, and what of them."""
_OWN_ENTRY: Final = frozenset(("heartbeat", "lease_expires", "context_percent"))
_RENEWED: Final = ("heartbeat", "lease_expires", "review_lease_expires")
"""Fields that supervisors write again and again, without a new revision."""
_HINT: Final = "liza edit --print"
_Path = tuple[str, ...]


class Editor(Value):
    """The session that hands in a text: its run, the task of the run, and the time."""

    run: str
    task: str | None
    now: datetime

    @property
    def agent(self) -> str:
        return agent_of(self.run)


def apply_edit(base: State, typed: State, current: State, editor: Editor) -> State:
    """Return ``current`` with the changes from ``base`` to ``typed``.

    Raises Refused with the first key that the session may not change, or that changed meanwhile; NotOwner.
    """
    differences = list(_find_differences(*(msgspec.to_builtins(state) for state in (base, typed, current))))
    for path in differences:
        if not _is_editable(path, editor):
            raise _refusal(path, f"a session may change {EDITABLE.get(path[0], 'only ' + ', '.join(EDITABLE))}")
    state = _renew_lease(base, typed, current, editor) if any(path[0] == "agents" for path in differences) else current
    state = _add_handoff(base, typed, state, editor)
    state = _add_discoveries(base, typed, state, editor)
    return _add_anomalies(base, typed, state, editor)


def _find_differences(old: Any, new: Any, now: Any, path: _Path = ()) -> Iterator[_Path]:
    """Yield the paths of the values that differ.

    An older time of a lease is no difference: the lease was renewed since the session read the board.
    """
    if old == new or path == ("revision",) or (path and path[-1] in _RENEWED and _is_older(new, now)):
        return
    old, new, now = _by_key(old), _by_key(new), _by_key(now)
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        yield path
        return
    absent: Any = None if path else {}  # A section without entries is not written.
    for key in dict.fromkeys([*old, *new]):
        present = now.get(key) if isinstance(now, Mapping) else None
        yield from _find_differences(old.get(key, absent), new.get(key, absent), present, (*path, key))


def _by_key(value: Any) -> Any:
    """Return a list as a mapping, by the ids of its entries or their positions."""
    if not isinstance(value, list | tuple):
        return value
    ids = [entry.get("id") if isinstance(entry, dict) else None for entry in value]
    pairs = zip(ids, value, strict=True)
    return {str(number if name is None else name): entry for number, (name, entry) in enumerate(pairs)}


def _is_older(new: Any, now: Any) -> bool:
    """Whether a time is not later than the present one. Times of the board sort as texts."""
    return isinstance(new, str) and isinstance(now, str) and new <= now


def _is_editable(path: _Path, editor: Editor) -> bool:
    section, *rest = path
    if section == "agents":
        return len(rest) > 1 and rest[0] == editor.agent and rest[1] in _OWN_ENTRY
    if section == "handoff":
        return rest[:1] == [editor.task]
    return section in ("discovered", "anomalies")  # What of them is decided entry by entry.


def _refusal(path: _Path, why: str, hint: str = _HINT) -> Refused:
    return Refused(f"{'.'.join(path)}: {why}; nothing was written", hint)


def _renew_lease(base: State, typed: State, current: State, editor: Editor) -> State:
    """Renew the lease of the run as `liza heartbeat` does, if its own entry says so."""
    path, longest = ("agents", editor.agent), setting_limits.lease_expiry(current.config, editor.now)
    old, new = base.agents[editor.agent], typed.agents[editor.agent]
    for name, latest in (("heartbeat", editor.now), ("lease_expires", longest)):
        if (after := getattr(new, name)) != getattr(old, name) and (after is None or after > latest):
            raise _refusal((*path, name), f"it is {after}, expected no later time than {latest}")
    if not 0 <= new.context_percent <= 100:
        raise _refusal((*path, "context_percent"), f"it is {new.context_percent}, expected 0 to 100")
    usage = new.context_percent / 100 if new.context_percent != old.context_percent else None
    return leases.renew_lease(current, editor.run, editor.now, usage)


def _add_handoff(base: State, typed: State, current: State, editor: Editor) -> State:
    """Write the hand-off of the run's task. The run goes on: `liza handoff` ends it."""
    task = editor.task or ""
    old, new, now = base.handoff.get(task), typed.handoff.get(task), current.handoff.get(task)
    if new == old:
        return current
    path = ("handoff", task)
    if new is None:
        raise _refusal(path, "a hand-off stays")
    if now != old:
        raise _refusal(path, "another process changed it meanwhile")
    kept = {name: getattr(now, name, None) for name in ("context_used", "failed_check")}
    _require_values(path, new, {"agent": editor.agent, "run": editor.run, **kept})
    for name in ("summary", "next_action"):
        if not getattr(new, name).strip():
            raise _refusal((*path, name), "it is empty")
    for name, value in msgspec.to_builtins(new).items():
        if len(str(value)) > board_reports.MAX_TEXT:
            raise _refusal((*path, name), f"it has more than {board_reports.MAX_TEXT} characters")
    claims.get_owned_task(current, task, editor.run)
    return replace(current, handoff={**current.handoff, task: replace(new, timestamp=editor.now)})


def _add_discoveries(base: State, typed: State, current: State, editor: Editor) -> State:
    """Add the new discoveries, each with the next free id, as `liza report` does."""
    given = {discovery.id: discovery for discovery in typed.discovered}
    present = {discovery.id for discovery in base.discovered}
    for discovery in base.discovered:
        if given.get(discovery.id) != discovery:
            raise _refusal(("discovered", discovery.id), "an entry stays as it is: entries are only added")
    for discovery in typed.discovered:
        if discovery.id in present:
            continue
        path = ("discovered", discovery.id)
        own = {"by": editor.agent, "during": editor.task, "converted_to_task": None, "resolved": None}
        _require_values(path, discovery, own)
        entry = Discovery(
            id="", description=discovery.description, created=editor.now, by=editor.agent, during=editor.task
        )
        details = {name: getattr(discovery, name) for name in ("urgency", "severity", "recommendation")}
        try:
            current, _ = board_reports.add_discovery(current, entry, details)
        except LizaError as error:
            raise _refusal(path, error.message, error.hint) from error
    return current


def _add_anomalies(base: State, typed: State, current: State, editor: Editor) -> State:
    """Add the new anomalies, as `liza report` does."""
    for number, anomaly in enumerate(base.anomalies):
        if typed.anomalies[number : number + 1] != (anomaly,):
            raise _refusal(("anomalies", board_reports.anomaly_id(number)), "entries are only added at the end")
    for number, anomaly in enumerate(typed.anomalies[len(base.anomalies) :], len(base.anomalies)):
        path = ("anomalies", board_reports.anomaly_id(number))
        _require_values(path, anomaly, {"reporter": editor.run, "task": editor.task, "resolved": None})
        try:
            current = board_reports.add_anomaly(current, replace(anomaly, timestamp=editor.now))
        except LizaError as error:
            raise _refusal(path, error.message, error.hint) from error
    return current


def _require_values(path: _Path, entry: Anomaly | Discovery | Handoff, expected: Mapping[str, Any]) -> None:
    """Raise Refused for the first field of an entry that is not as expected."""
    for name, value in expected.items():
        if getattr(entry, name) != value:
            raise _refusal((*path, name), f"it is {getattr(entry, name)}, expected {value}")


_SPEC: Final = "spec:"
_NOTE: Final = "# The document of the goal (committed, or below .liza/specs/); then what the crew should achieve."


def format_goal(goal: Goal) -> str:
    """Return the text that a person edits."""
    return f"{_NOTE}\n{_SPEC} {goal.spec_ref}\n\n{goal.description}\n"


def parse_goal(text: str) -> tuple[str, str]:
    """Return description and document of an edited text. Lines that begin with # are left out. Raises UsageError."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    specs = [line.removeprefix(_SPEC).strip() for line in lines if line.startswith(_SPEC)]
    description = "\n".join(line for line in lines if not line.startswith(_SPEC)).strip()
    if len(specs) != 1 or not specs[0]:
        raise UsageError(f"the text has {len(specs)} lines {_SPEC} FILE; it needs 1 with a file", "liza edit --goal")
    if not description:
        raise UsageError("the goal has no description", "liza edit --goal")
    return description, specs[0]


def note_edit(before: Goal, after: Goal, by: str, now: datetime) -> Goal:
    """Return ``after`` with a note that says what ``by`` changed in description and document."""
    former = f", not {before.spec_ref}" if before.spec_ref else ""
    changes = [f"the document is {after.spec_ref}{former}"] * (after.spec_ref != before.spec_ref)
    changes += [f"the goal is: {after.description}"] * (after.description != before.description)
    note = AlignmentNote(timestamp=now, event=by, summary="; ".join(changes))
    return replace(after, alignment_history=(*after.alignment_history, note))


def describe_note(note: AlignmentNote) -> str:
    """Return a note as one text: author, time, text."""
    when = f" at {format_time(note.timestamp)}" if note.timestamp is not None else ""
    return f"{note.event or 'unknown'}{when}: {note.summary}"
