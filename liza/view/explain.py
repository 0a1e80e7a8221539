"""explain: say what alarms, errors and findings mean, and what answers them."""

from __future__ import annotations

from collections.abc import Sequence

from liza.alarms.rules import troubleshooting
from liza.alarms.rules.troubleshooting import Explanation
from liza.crew.crew import Crew, find_crew
from liza.crew.layout import find_texts
from liza.model.errors import LizaError, NoCrew
from liza.model.value_classes import Value
from liza.view.status import look


class AlarmText(Value):
    """A present alarm: its kind, what it is about, its sentence and its command."""

    kind: str
    about: str
    message: str
    next: str


class Explanations(Value):
    """The present ``alarms`` of the crew, and entries of the page about troubleshooting."""

    alarms: tuple[AlarmText, ...]
    entries: tuple[Explanation, ...]


def explain(words: Sequence[str]) -> Explanations:
    """Return the entries that have the name, or all words.

    Without words: the present alarms of the crew, and the entry of each kind; outside a crew, or without an alarm, all
    entries. Raises UnknownId, Missing.
    """
    entries = read_entries()
    if words:
        return Explanations((), troubleshooting.find_entries(entries, words))
    try:
        alarms = _present_alarms(find_crew())
    except NoCrew:
        return Explanations((), entries)
    named = troubleshooting.select_entries(entries, (alarm.kind for alarm in alarms))
    return Explanations(alarms, named if alarms else entries)


def read_entries() -> tuple[Explanation, ...]:
    """Return the entries of the page, which is part of the package. Raises Missing."""
    page = find_texts("specs") / troubleshooting.PAGE
    return troubleshooting.parse_entries(page.read_text(encoding="utf-8"))


def _present_alarms(crew: Crew) -> tuple[AlarmText, ...]:
    """Return the alarms as `liza status` shows them; an unreadable board is the only alarm then."""
    try:
        picture = look(crew)
    except NoCrew:
        raise
    except LizaError as error:
        return (AlarmText(error.code, "board", error.message, str(error.hint or "")),)
    rows = {(row.kind, row.about): row for row in (*picture.waits, *picture.news)}
    return tuple(AlarmText(row.kind, row.about, row.message, row.next) for row in rows.values())
