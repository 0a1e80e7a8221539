"""The entries of the page about troubleshooting: what an alarm, an error or a finding means. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from liza.model.errors import UnknownId
from liza.model.value_classes import Value
from liza.text.formats import did_you_mean

PAGE: Final = "troubleshooting.md"
"""Name of the page below ``specs``."""
_GROUP: Final = re.compile(r"## (.+)")
_ROW: Final = re.compile(r"\| `([^`]+)` \| (.+?) \| (.+?) \| (.+) \|")


class Explanation(Value):
    """An entry. ``reaction``: what Liza does by itself; ``answer``: what a person does, with commands in backticks."""

    name: str
    group: str
    meaning: str
    reaction: str
    answer: str


def parse_entries(page: str) -> tuple[Explanation, ...]:
    """Return the entries of the page, in its order."""
    return tuple(_iter_entries(page))


def _iter_entries(page: str) -> Iterator[Explanation]:
    group = ""
    for line in page.splitlines():
        if match := _GROUP.fullmatch(line):
            group = match[1]
        elif match := _ROW.fullmatch(line):
            yield Explanation(match[1], group, match[2], match[3], match[4])


def normalize_name(name: str) -> str:
    """Return the form in which names are compared: codes of errors have hyphens, kinds of alarms underscores."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def find_entries(entries: Sequence[Explanation], words: Sequence[str]) -> tuple[Explanation, ...]:
    """Return the entry of that name, or else all whose text has each word. Raises UnknownId if none has."""
    wanted = normalize_name(" ".join(words))
    named = tuple(entry for entry in entries if normalize_name(entry.name) == wanted)
    if named:
        return named
    # At the beginning of a word: "lock" is in "locks" and "merge_lock_held", not in "blocked" or "clock".
    searched = [rf"(?<![a-z0-9]){re.escape(word.lower())}" for word in " ".join(words).split()]
    matches = tuple(entry for entry in entries if searched and all(re.search(word, _text(entry)) for word in searched))
    if not matches:
        suggestion = did_you_mean(" ".join(words), [entry.name for entry in entries])
        raise UnknownId(f"nothing is explained by the name {' '.join(words)!r}{suggestion}", "liza explain")
    return matches


def select_entries(entries: Iterable[Explanation], names: Iterable[str]) -> tuple[Explanation, ...]:
    """Return the entries of these names, each once, in the order of the names; names without an entry are left out."""
    by_name = {normalize_name(entry.name): entry for entry in entries}
    return tuple(by_name[name] for name in dict.fromkeys(map(normalize_name, names)) if name in by_name)


def _text(entry: Explanation) -> str:
    return " ".join((entry.name, entry.group, entry.meaning, entry.reaction, entry.answer)).lower()
