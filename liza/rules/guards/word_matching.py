"""Match words against patterns. A word may contain parts that are unknown before it runs.

A pattern has the wildcards ``*`` and ``?`` and no others, so that no pattern can be slow: a word is matched in a time
proportional to its length times the pattern's.
"""

from __future__ import annotations

ANY = "\uf8f0"
"""Stands for unknown characters within a word."""
MANY = "\uf8f1"
"""Stands for unknown characters that may also be several words, or none."""
FILES = "\uf8f4"
"""Stands for a wildcard of the shell, which becomes the names of files."""
MARK = "\uf8f5"
"""First character of a word that Liza adds to a command, removed from words of agents. Patterns write it as ``@``."""
NO, MAYBE, YES = 0, 1, 2
MAX_LENGTH = 4096
"""Longest word that is compared in full, in characters."""


def is_known(word: str) -> bool:
    """Return whether no part of the word is unknown."""
    return ANY not in word and MANY not in word and FILES not in word


def is_unknown(word: str) -> bool:
    """Return whether nothing of the word is known."""
    return bool(word) and not word.strip(ANY + MANY + FILES)


def match_glob(pattern: str, word: str) -> int:
    """Return YES, NO, or MAYBE if it depends on the word's unknown parts."""
    if pattern == "*":
        return YES
    is_whole = is_known(word)
    if is_whole and "*" not in pattern and "?" not in pattern:
        return YES if pattern == word else NO
    if is_whole and "?" not in pattern:
        start, _, rest = pattern.partition("*")
        if not word.startswith(start):
            return NO
        if "*" not in rest:
            return YES if word.endswith(rest) and len(word) >= len(start) + len(rest) else NO
    if len(word) > MAX_LENGTH:
        start = pattern.partition("*")[0].partition("?")[0]
        return MAYBE if not is_whole or word.startswith(start) else NO
    if not _accepts(pattern, word):
        return NO
    return YES if is_whole else MAYBE


def _accepts(pattern: str, word: str) -> bool:
    """Simulate the pattern as an automaton; ``states`` has a bit for each position in the pattern."""
    while "**" in pattern:
        # One round of _skip_stars for each star in a row: a long row would take minutes.
        pattern = pattern.replace("**", "*")
    end = len(pattern)
    stars = 0
    by_character: dict[str, int] = {}
    for position, character in enumerate(pattern):
        bit = 1 << position
        if character == "*":
            stars |= bit
        else:
            by_character[character] = by_character.get(character, 0) | bit
    every = by_character.get("?", 0)
    everything = (1 << (end + 1)) - 1
    states = _skip_stars(1, stars)
    for character in word:
        if character in (ANY, MANY, FILES):
            lowest = states & -states
            states = everything & ~(lowest - 1)
        else:
            moved = states & (by_character.get(character, 0) | every)
            states = _skip_stars((states & stars) | (moved << 1), stars)
        if not states:
            return False
    return bool(states & (1 << end))


def _skip_stars(states: int, stars: int) -> int:
    """Add the positions behind stars: a star also stands for nothing."""
    while True:
        more = states | ((states & stars) << 1)
        if more == states:
            return states
        states = more


def match_any(patterns: tuple[str, ...], word: str) -> int:
    """Return the best match of a word among alternatives."""
    return max((match_glob(pattern, word) for pattern in patterns), default=NO)
