"""How long to wait before the next try. Pure."""

from __future__ import annotations


def backoff(failures: int, first: float, longest: float, factor: float = 2.0) -> float:
    """Return the seconds to wait after ``failures`` failures in a row; 0 for none.

    The first failure is followed by ``first`` seconds, each further one by ``factor`` times as many, at most
    ``longest``.
    """
    return 0.0 if failures <= 0 else float(min(longest, first * factor ** min(failures - 1, 60)))
