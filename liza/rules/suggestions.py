"""What somebody probably meant to type. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that a mistyped word is nearest to; None where none is near."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean show?``, to be put behind a message; empty where nothing is near."""
    found = closest_match(word, known)
    return f"; did you mean {found}?" if found else ""
