"""explain: say what alarms, errors and findings mean, and what answers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liza.alarms.rules import troubleshooting
from liza.alarms.rules.troubleshooting import Explanation
from liza.crew.crew import Crew, find_crew
from liza.crew.layout import find_texts
from liza.model.errors import LizaError, NoCrew
from liza.model.value_classes import asdict as fields_of
from liza.view.status import status

_ALARM_FIELDS = ("kind", "about", "message", "next")


def explain(words: Sequence[str]) -> dict[str, Any]:
    """Return ``entries`` that have the name, or all words, and ``alarms``.

    Without words: the present alarms of the crew, and the entry of each kind; outside a crew, or without an alarm, all
    entries. Raises UnknownId, Missing.
    """
    entries = read_entries()
    if words:
        return _explanations(troubleshooting.find_entries(entries, words))
    try:
        alarms = _present_alarms(find_crew())
    except NoCrew:
        return _explanations(entries)
    named = troubleshooting.select_entries(entries, (alarm["kind"] for alarm in alarms))
    return _explanations(named if alarms else entries, alarms)


def read_entries() -> tuple[Explanation, ...]:
    """Return the entries of the page, which is part of the package. Raises Missing."""
    page = find_texts("specs") / troubleshooting.PAGE
    return troubleshooting.parse_entries(page.read_text(encoding="utf-8"))


def _present_alarms(crew: Crew) -> list[dict[str, Any]]:
    """Return the alarms as `liza status` shows them; an unreadable board is the only alarm then."""
    try:
        summary = status(crew)
    except NoCrew:
        raise
    except LizaError as error:
        return [{"kind": error.code, "about": "board", "message": error.message, "next": error.hint}]
    rows = [*summary["waiting"], *summary["alerts"]]
    alarms = {(row["kind"], row["about"]): {name: row[name] for name in _ALARM_FIELDS} for row in rows}
    return list(alarms.values())


def _explanations(entries: Sequence[Explanation], alarms: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"alarms": list(alarms), "entries": [fields_of(entry) for entry in entries]}
