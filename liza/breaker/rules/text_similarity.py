"""Similarity of failure texts. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

MAX_COMPARED = 200
"""Number of characters of a text that are compared. A failure tells its kind at its start, and the time of a comparison
is quadratic: 0.7 ms for two texts of this length, 4 ms for the worst ones."""
_NUMBER = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b|\d+")


def normalize_text(text: str) -> str:
    """Return the text in lower case and one line, at most MAX_COMPARED characters, with ``#`` for numbers and hashes.

    Line numbers, durations and commits differ from one try to the next.
    """
    return _NUMBER.sub("#", " ".join(text[: 4 * MAX_COMPARED].lower().split()))[:MAX_COMPARED]


def are_similar(texts: Sequence[str], similarity: int) -> bool:
    """Return whether all texts are similar to the last one; True for less than two. ``similarity``: 0 to 100."""
    keys = [normalize_text(text) for text in texts]
    return all(_score(key, keys[-1], similarity) for key in keys[:-1])


def find_largest_group(texts: Sequence[str], similarity: int) -> tuple[int, ...]:
    """Return the indices of the most texts that are similar to one of them; empty without texts.

    The time is quadratic in the number of different texts.
    """
    keys = [normalize_text(text) for text in texts]
    best: frozenset[str] = frozenset()
    counts = Counter(keys)
    for key in counts:
        group = frozenset(other for other in counts if _score(key, other, similarity))
        if sum(counts[name] for name in group) > sum(counts[name] for name in best):
            best = group
    return tuple(index for index, key in enumerate(keys) if key in best)


@lru_cache(maxsize=4096)  # A breaker compares the same texts again after each failure.
def _score(first: str, second: str, similarity: int) -> bool:
    if first == second:
        return True
    limit = max(similarity, 1) / 100
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return matcher.real_quick_ratio() >= limit and matcher.quick_ratio() >= limit and matcher.ratio() >= limit
