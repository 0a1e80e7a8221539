"""A mutant, the sample that is tried, and the survivors that are accepted. No library, disk or process is used here."""

from __future__ import annotations

import enum
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


class Result(enum.Enum):
    """What the tests made of a mutant. Only SURVIVED and NOT_EXECUTED count against the score."""

    KILLED = "killed"
    TIMEOUT = "timeout"
    REFUSED = "refused by mypy"
    SURVIVED = "survived"
    NOT_EXECUTED = "not executed"
    """No test executes the line, so none was run."""


Change = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""Path, function, lines before and after."""
DETECTED = (Result.KILLED, Result.TIMEOUT, Result.REFUSED)


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the characters from ``start`` to ``end`` of its text become ``replacement``.

    ``path`` is relative to the checkout, ``line`` counts from 1. ``function`` is the qualified name of the outermost
    function around the change; empty for code that runs when the module is imported. ``before`` and ``after`` are the
    changed lines without indentation.
    """

    path: str
    line: int
    function: str
    start: int
    end: int
    replacement: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the text of the module with the change."""
        return text[: self.start] + self.replacement + text[self.end :]

    @property
    def change(self) -> Change:
        """What identifies the mutant when lines around it move."""
        return self.path, self.function, self.before, self.after


@dataclass(frozen=True)
class Accepted:
    """A survivor that needs no test, with the reason. It has no line number: code above it may change."""

    path: str
    function: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: str

    @property
    def change(self) -> Change:
        """What identifies the mutant."""
        return self.path, self.function, self.before, self.after


@dataclass(frozen=True)
class Score:
    """The numbers of detected and undetected mutants."""

    detected: int
    undetected: int

    @property
    def percent(self) -> float:
        """Share of detected mutants, 0 to 100; 100 without mutants."""
        tried = self.detected + self.undetected
        return 100 * self.detected / tried if tried else 100.0


def is_prose(text: str) -> bool:
    """Whether a string is part of a text for people: white space and other characters. No rule needs its words."""
    return len(text) > 1 and any(character.isspace() for character in text)


def changed_lines(text: str, start: int, end: int, replacement: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines of the characters from ``start`` to ``end``, before and after the change, without indentation.

    Equal lines around the change are left out.
    """
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    before = [line.strip() for line in text[first:last].splitlines()]
    after = [line.strip() for line in (text[first:start] + replacement + text[end:last]).splitlines()]
    while len(before) > 1 and len(after) > 1 and before[0] == after[0]:
        del before[0], after[0]
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        del before[-1], after[-1]
    return tuple(before), tuple(after)


def compiles(text: str) -> bool:
    """Whether a text is Python."""
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def sample(mutants: Sequence[Mutant], size: int | None, seed: int, texts: Mapping[str, str]) -> list[Mutant]:
    """Return ``size`` mutants in the order of the code, each equally likely; all without a size.

    A change that is no Python is replaced by another one. ``texts`` has the modules by path.
    """
    order = list(mutants)
    random.Random(seed).shuffle(order)
    valid = (mutant for mutant in order if compiles(mutant.applied(texts[mutant.path])))
    return sorted(itertools.islice(valid, size), key=lambda mutant: (mutant.path, mutant.start, mutant.end))


def without_accepted(mutants: Iterable[Mutant], accepted: Iterable[Accepted]) -> list[Mutant]:
    """Return the mutants that no entry accepts."""
    entries = {(entry.path, entry.function, entry.before, entry.after) for entry in accepted}
    return [
        mutant
        for mutant in mutants
        if (mutant.path, mutant.function, mutant.before, mutant.after) not in entries
    ]  # fmt: skip


def outdated(mutants: Iterable[Mutant], accepted: Iterable[Accepted]) -> list[Accepted]:
    """Return the entries that are about no mutant any more: the code has changed."""
    changes = {mutant.change for mutant in mutants}
    return [entry for entry in accepted if entry.change not in changes]


def scores(results: Mapping[Mutant, Result]) -> dict[str, Score]:
    """Return the score of each package, by its path, and of all under the empty name."""
    counts: Counter[tuple[str, bool]] = Counter()
    for mutant, result in results.items():
        for package in ("", mutant.path.rpartition("/")[0]):
            counts[package, result in DETECTED] += 1
    packages = sorted({package for package, _ in counts})
    return {package: Score(counts[package, True], counts[package, False]) for package in packages}


def report(results: Mapping[Mutant, Result]) -> Iterator[str]:
    """Yield the lines of the report: the survivors with their diffs, then the scores."""
    for mutant, result in results.items():
        if result not in DETECTED:
            yield f"{mutant.path}:{mutant.line}: {result.value}, in {mutant.function or 'the module'}"
            yield from (f"  - {line}" for line in mutant.before)
            yield from (f"  + {line}" for line in mutant.after)
    counts = Counter(result for result in results.values())
    for package, score in scores(results).items():
        yield f"{score.percent:5.1f} %  {score.detected:4} of {score.detected + score.undetected:4}  {package or 'all'}"
    yield ", ".join(f"{counts[result]} {result.value}" for result in Result)
