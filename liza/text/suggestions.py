"""Suggestions for mistyped words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest_match(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a mistyped word, in any case; None if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return the end of a message, such as ``; did you mean show?``; empty if no candidate is similar."""
    match = closest_match(word, candidates)
    return f"; did you mean {match}?" if match else ""
