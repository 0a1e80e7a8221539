"""Which lines of liza/ each unit test executes, and how long it takes. The only module that imports coverage.

Recording costs as much as the tests, so the records are saved. A record is renewed if its test file, a helper of the
tests or any module of Liza has changed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.definitions import Definitions, Part

IMPORT = ""
"""The context of lines that run when modules are imported and tests are collected."""

READS_DEFINITIONS = "tests/unit/house/test_stored_words.py"
"""Tests that look at definitions of all modules by themselves: words and defaults."""


@dataclass(frozen=True)
class Record:
    """What one test, or the import (``IMPORT``), executes: CPU seconds, and the lines of each module by its path."""

    test: str
    seconds: float
    lines: dict[str, list[int]]


class LineRecorder:
    """A plugin of pytest that records the tests of one session. ``failed`` has the tests that failed."""

    def __init__(self, root: Path) -> None:
        import coverage  # It is in the group "mutation": unit tests of the driver run without it.

        self._root = root
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=[f"{root}/liza/*"])
        self._seconds: dict[str, float] = {IMPORT: 0.0}
        self.failed: list[str] = []

    def start(self) -> None:
        """Record from here on what is executed, at first as part of the import."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        begin = time.process_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = round(time.process_time() - begin, 4)
            self._coverage.switch_context(IMPORT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def records(self) -> list[Record]:
        """Stop recording and return the records."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for file in data.measured_files():
            path = str(Path(file).relative_to(self._root))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines[context][path].append(line)
        return [Record(test, seconds, lines[test]) for test, seconds in self._seconds.items()]


def checksums(root: Path, tests: Sequence[Path]) -> dict[str, str]:
    """Return a checksum for each test file: of the file, of what all of them share, and of Liza."""
    shared = hashlib.sha256()
    for path in sorted(
        [*(root / "liza").rglob("*.py"), *(root / "tests").glob("*.py"), *(root / "tests/unit").rglob("*")]
    ):
        if path.is_file() and path not in tests:
            shared.update(f"{path}\0".encode() + path.read_bytes())
    return {
        str(path.relative_to(root)): hashlib.sha256(shared.digest() + path.read_bytes()).hexdigest() for path in tests
    }


def load(store: Path, wanted: dict[str, str]) -> dict[str, list[Record]]:
    """Return the saved records of each test file whose checksum is the wanted one."""
    records = {}
    for file, checksum in wanted.items():
        saved = store / f"{Path(file).stem}.json"
        if saved.is_file():
            content = json.loads(saved.read_text())
            if content["checksum"] == checksum:
                records[file] = [Record(**record) for record in content["records"]]
    return records


def save(store: Path, file: str, checksum: str, records: Sequence[Record]) -> None:
    """Save the records of a test file."""
    store.mkdir(parents=True, exist_ok=True)
    content = {"checksum": checksum, "records": [vars(record) for record in records]}
    (store / f"{Path(file).stem}.json").write_text(json.dumps(content))


def statement_starts(text: str) -> dict[int, int]:
    """Map each line of a module to the first line of the innermost statement there.

    The interpreter does not report each line of a statement that has several.
    """
    starts: dict[int, int] = {}
    for node in ast.walk(ast.parse(text)):  # breadth first: inner statements come after outer ones
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                starts[line] = node.lineno
    return starts


class Coverage:
    """Which tests execute a line of a module. ``texts`` has all modules of Liza by path."""

    def __init__(self, records: Sequence[Record], texts: dict[str, str]) -> None:
        self.seconds = {record.test: record.seconds for record in records if record.test != IMPORT}
        self._texts = texts
        self._tests: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._starts: dict[str, dict[int, int]] = {}
        self._definitions = Definitions(texts)
        self._tests_of_file: dict[str, set[str]] = defaultdict(set)
        for test in self.seconds:
            self._tests_of_file[test.partition("::")[0]].add(test)
        for record in records:
            for path, lines in record.lines.items():
                for line in lines:
                    self._tests[path, line].add(record.test)

    def tests_of_line(self, path: str, line: int) -> list[str]:
        """Return the tests that execute a line, the fastest first."""
        return self._sorted(self._contexts(path, line) - {IMPORT})

    def is_imported(self, path: str, line: int) -> bool:
        """Whether the line is executed when modules are imported."""
        return IMPORT in self._contexts(path, line)

    def tests_of_definition(self, path: str, line: int) -> list[str]:
        """Return the tests that execute the line, and those that use what is defined there; the fastest first.

        These are tests that execute a function of Liza that uses it, and tests that use it themselves. A function of
        the tests that is no test counts for all tests of its file. The tests in ``READS_DEFINITIONS`` count if there
        are others: they execute no line of a module.
        """
        tests = self._contexts(path, line).copy()
        for part in self._definitions.users(path, line):
            for number in range(part.first, part.last + 1):
                tests |= self._tests.get((part.path, number), set())
            tests |= self._tests_that_use(part)
        if tests - {IMPORT}:
            tests |= {test for test in self.seconds if test.partition("::")[0] == READS_DEFINITIONS}
        return self._sorted(tests - {IMPORT})

    def _tests_that_use(self, function: Part) -> set[str]:
        (name,) = function.defined
        selected = {test for test in self._tests_of_file[function.path] if re.search(rf"::{name}(\[|$)", test)}
        return selected or self._tests_of_file[function.path]

    def _contexts(self, path: str, line: int) -> set[str]:
        if path not in self._starts:
            self._starts[path] = statement_starts(self._texts[path])
        start = self._starts[path].get(line, line)
        return self._tests.get((path, line)) or self._tests.get((path, start)) or set()

    def _sorted(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))
