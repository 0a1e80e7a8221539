"""What mutation testing counts: the sample, the accepted survivors, the tests of a line, the score."""

from __future__ import annotations

import pytest

from tests.mutation import mutants, type_checks
from tests.mutation.definitions import Definitions
from tests.mutation.executed_lines import Coverage, Record
from tests.mutation.mutants import Accepted, Mutant, Result, Score

TEXT = "def f(a):\n    return a + 1\n\n\ndef g(a):\n    return (\n        a\n        - 1\n    )\n"


def mutant(change: str, replacement: str, function: str = "f", path: str = "liza/tasks/rules/a.py") -> Mutant:
    start = TEXT.index(change)
    end = start + len(change)
    before, after = mutants.changed_lines(TEXT, start, end, replacement)
    line = TEXT[:start].count("\n") + 1
    return Mutant(path, line, function, start, end, replacement, before, after)


PLUS = mutant("+", "-")
NUMBER = mutant("+ 1", "+ 2")
MINUS = mutant("- 1", "+ 1", "g", "liza/rules/b.py")
BROKEN = mutant("return a", "return a a")


def test_a_mutant_is_the_text_with_one_change() -> None:
    assert PLUS.applied(TEXT) == TEXT.replace("a + 1", "a - 1")
    assert (PLUS.before, PLUS.after) == (("return a + 1",), ("return a - 1",))


def test_only_the_changed_line_of_a_long_statement_is_shown() -> None:
    start, end = TEXT.index("return (") + 7, len(TEXT) - 1
    changed = TEXT[start:end].replace("- 1", "+ 1")
    assert mutants.changed_lines(TEXT, start, end, changed) == (("- 1",), ("+ 1",))


@pytest.mark.parametrize(
    ("text", "prose"),
    [("merged", False), ("task/", False), ("", False), (" ", False), ("\n", False), (", ", True), ("no task", True)],
)
def test_only_texts_for_people_are_left_as_they_are(text: str, prose: bool) -> None:
    assert mutants.is_prose(text) is prose


def test_a_sample_depends_on_its_seed_alone() -> None:
    texts = {PLUS.path: TEXT, MINUS.path: TEXT}
    every = [PLUS, NUMBER, BROKEN, MINUS]
    assert mutants.sample(every, None, 1, texts) == [MINUS, PLUS, NUMBER]
    samples = {seed: mutants.sample(every, 2, seed, texts) for seed in range(20)}
    assert samples == {seed: mutants.sample(every, 2, seed, texts) for seed in range(20)}
    assert {len(chosen) for chosen in samples.values()} == {2}
    assert {mutant for chosen in samples.values() for mutant in chosen} == {PLUS, NUMBER, MINUS}


def test_an_accepted_survivor_stays_uncounted_until_its_mutant_is_gone() -> None:
    entry = Accepted(PLUS.path, "f", PLUS.before, PLUS.after, "no difference")
    assert mutants.without_accepted([PLUS, NUMBER], [entry]) == [NUMBER]
    assert mutants.outdated([PLUS, NUMBER], [entry]) == []
    assert mutants.outdated([NUMBER], [entry]) == [entry]
    elsewhere = Accepted(PLUS.path, "g", PLUS.before, PLUS.after, "no difference")
    assert mutants.without_accepted([PLUS], [elsewhere]) == [PLUS]


def test_a_timeout_counts_as_detected_but_untested_lines_do_not() -> None:
    results = {PLUS: Result.KILLED, NUMBER: Result.TIMEOUT, MINUS: Result.NOT_EXECUTED}
    assert mutants.scores(results) == {"": Score(2, 1), "liza/rules": Score(0, 1), "liza/tasks/rules": Score(2, 0)}
    assert Score(2, 1).percent == pytest.approx(66.7, abs=0.1)
    assert Score(0, 0).percent == 100


def test_mypy_checks_one_survivor_of_each_module_at_once() -> None:
    assert type_checks.rounds_of([PLUS, MINUS, NUMBER]) == [[PLUS, MINUS], [NUMBER]]
    assert type_checks.rounds_of([]) == []
    output = "liza/a.py:3: error: No overload  [arg-type]\nliza/a.py:3: note: see\nliza/b.py:1: note: x\n"
    assert type_checks.refused_paths(output) == {"liza/a.py"}


def test_the_report_has_each_survivor_with_its_change() -> None:
    lines = list(mutants.report({PLUS: Result.SURVIVED, NUMBER: Result.KILLED, MINUS: Result.NOT_EXECUTED}))
    assert lines[:3] == ["liza/tasks/rules/a.py:2: survived, in f", "  - return a + 1", "  + return a - 1"]
    assert lines[3] == "liza/rules/b.py:8: not executed, in g"
    assert lines[-1] == "1 killed, 0 timeout, 0 refused by mypy, 1 survived, 1 not executed"


MODULE = """\
LIMITS = {"a": 1}
ALL = tuple(LIMITS)
OTHER = 2


class Entry:
    count: int = 3


def total(entry: Entry) -> int:
    return sum(LIMITS.values())


def names() -> tuple[str, ...]:
    return ALL


def new():
    return Entry()
"""


def test_a_changed_table_is_tried_with_tests_reading_it() -> None:
    tests = "def test_a():\n    assert ALL\n\n\ndef entry():\n    return Entry()\n\n\ndef test_b():\n    entry()\n"
    names = [f"tests/unit/test_x.py::{name}" for name in ("test_a[1]", "test_ab", "test_b")]
    records = [Record(name, number, {}) for number, name in enumerate(names)]
    coverage = Coverage(records, {"a.py": MODULE, "tests/unit/test_x.py": tests})
    assert coverage.tests_of_definition("a.py", 2) == names[:1]
    assert coverage.tests_of_definition("a.py", 7) == names


@pytest.mark.parametrize(
    ("line", "users"), [(1, ["total", "names"]), (2, ["names"]), (3, []), (7, ["new"]), (11, []), (99, [])]
)
def test_users_of_constants_and_classes_are_found_by_name(line: int, users: list[str]) -> None:
    parts = Definitions({"a.py": MODULE}).users("a.py", line)
    assert [next(iter(part.defined)) for part in parts] == users
