"""Try mutants: run the tests that execute the changed line, until one fails.

A change in a function is tried in a fork of a process that has collected all tests: the function gets the code of the
changed one. A change of what runs when a module is imported is tried in a process that imports the changed module.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest
from hypothesis import Phase, settings

from tests.mutation import children
from tests.mutation.executed_lines import Coverage, LineRecorder, Record
from tests.mutation.mutants import Mutant, Result
from tests.unit.sources import pure_modules

PASSED, FAILED = 0, 1
BASE_SECONDS = 10
"""CPU time that a child has beside that of its tests, in seconds."""
FACTOR = 4
"""A child may take so many times the CPU time of its tests without a mutant."""
OPTIONS = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not campaign and not real")


class TestsFailed(Exception):
    """Tests fail without a mutant."""


class _Driver:
    """The part of the plugins that is the same: a failure of a property is not minimized, which takes minutes."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (Phase.explicit, Phase.generate)
        profile = settings.get_profile("liza")
        settings.register_profile("mutation", profile, phases=phases, print_blob=False, max_examples=100)
        settings.load_profile("mutation")


class _FirstFailure(_Driver):
    """Runs only the given tests, in their order, and ends the process at the first failure."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._order), key=lambda i: self._order[i.nodeid])


def module_name(path: str) -> str:
    """Return the dotted name of a module, by its path in the checkout."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def import_rules(root: Path) -> None:
    """Import all modules of the rules: some are imported lazily, and a change needs the function to be there."""
    for path in pure_modules(root):
        importlib.import_module(module_name(str(path.relative_to(root))))


def record(root: Path, files: Sequence[str], processes: int, directory: Path) -> Iterator[Record]:
    """Run test files and yield the records of their tests. Raises TestsFailed."""
    shares = [list(files[number::processes]) for number in range(processes)]
    jobs = [
        children.Job(
            directory / f"records-{number}.json",
            3600,
            partial(_record, root, share, directory / f"records-{number}.json"),
        )
        for number, share in enumerate(shares)
        if share
    ]
    log = directory / "recording.log"
    for output, status in children.run(jobs, processes, log):
        if status != PASSED:
            raise TestsFailed(f"tests fail without a mutant:\n{log.read_text()[-3000:]}")
        for content in json.loads(output.read_text()):
            yield Record(**content)


def _record(root: Path, files: Sequence[str], output: Path) -> int:
    recorder = LineRecorder(root)
    recorder.start()
    import_rules(root)
    status = pytest.main([*OPTIONS, *files], plugins=[recorder, _Driver()])
    output.write_text(json.dumps([vars(record) for record in recorder.records()]))
    return FAILED if recorder.failed else int(status)


def limit(tests: Sequence[str], coverage: Coverage) -> int:
    """Return the CPU seconds that a child may take for some tests."""
    return BASE_SECONDS + math.ceil(FACTOR * sum(coverage.seconds[test] for test in tests))


def result_of(status: int) -> Result:
    """Return the result of a mutant by the exit status of its child. A child that a signal ended took too long."""
    if status < 0:
        return Result.TIMEOUT
    return Result.SURVIVED if status == PASSED else Result.KILLED


class Trials:
    """Tries mutants against the tests that ``coverage`` has. ``texts`` has the modules by path."""

    def __init__(self, root: Path, coverage: Coverage, texts: dict[str, str], processes: int, directory: Path) -> None:
        self._root, self._coverage, self._texts = root, coverage, texts
        self._processes, self._directory = processes, directory

    def run(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, Result]]:
        """Yield each mutant with its result."""
        in_functions, others = [], []
        for mutant in mutants:
            if not mutant.function or self._coverage.is_imported(mutant.path, mutant.line):
                others.append(mutant)
            elif self._coverage.tests_of_line(mutant.path, mutant.line):
                in_functions.append(mutant)
            else:
                yield mutant, Result.NOT_EXECUTED
        for mutant, status in self._in_collected(in_functions):
            if status is None:
                others.append(mutant)
            else:
                yield mutant, result_of(status)
        tests = {mutant: self._coverage.tests_of_definition(mutant.path, mutant.line) for mutant in others}
        jobs = (self._module_job(mutant, tests[mutant]) for mutant in others)
        for mutant, status in children.run(jobs, self._processes, self._directory / "modules.log"):
            yield mutant, Result.NOT_EXECUTED if status == PASSED and not tests[mutant] else result_of(status)

    def _in_collected(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, int | None]]:
        """Yield each mutant with the exit status of its child; None if its function is not there alone."""
        if not mutants:
            return
        output, log = self._directory / "functions.json", self._directory / "functions.log"
        plugin = _Collected(self._root, mutants, self._texts, self._coverage, self._processes, output)
        job = children.Job(None, 1 << 20, lambda: int(pytest.main([*OPTIONS, "tests/unit"], plugins=[plugin])))
        for _, status in children.run([job], 1, log):
            if status != PASSED or not output.is_file():
                raise TestsFailed(f"the tests were not collected:\n{log.read_text()[-3000:]}")
        statuses = json.loads(output.read_text())
        for number, mutant in enumerate(mutants):
            yield mutant, statuses.get(str(number))

    def _module_job(self, mutant: Mutant, tests: Sequence[str]) -> children.Job[Mutant]:
        function = partial(_try_module, mutant, mutant.applied(self._texts[mutant.path]), self._root, tests)
        return children.Job(mutant, 3 * BASE_SECONDS + limit(tests, self._coverage), function)


def _try_module(mutant: Mutant, text: str, root: Path, tests: Sequence[str]) -> int:
    """Import the changed module instead of the one in its file, and run the tests. A failed import is a failure."""
    sys.meta_path.insert(0, _ChangedModule(mutant.path, text, root))
    importlib.import_module(module_name(mutant.path))
    files = sorted({test.partition("::")[0] for test in tests})
    return int(pytest.main(["-x", *OPTIONS, *files], plugins=[_FirstFailure(tests)])) if files else PASSED


class _ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module with a changed text."""

    def __init__(self, path: str, text: str, root: Path) -> None:
        self._name = module_name(path)
        self._file, self._text = str(root / path), text

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=self._file, is_package=self._file.endswith("__init__.py")
        )
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(Path(self._file).parent))
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._text, self._file, "exec", dont_inherit=True), module.__dict__)


class _Collected(_Driver):
    """Instead of running the collected tests, tries each mutant in a fork."""

    def __init__(
        self,
        root: Path,
        mutants: Sequence[Mutant],
        texts: dict[str, str],
        coverage: Coverage,
        processes: int,
        output: Path,
    ) -> None:
        self._root, self._mutants, self._texts, self._coverage = root, mutants, texts, coverage
        self._processes, self._output = processes, output
        self._in_child = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._in_child and report.failed:
            raise _Failure

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import_rules(self._root)
        self._items = {item.nodeid: item for item in session.items}
        functions = functions_of(pure_modules(self._root))
        gc.collect()
        gc.freeze()
        jobs = filter(None, (self._job(number, mutant, functions) for number, mutant in enumerate(self._mutants)))
        log = self._output.with_suffix(".log")
        statuses = {}
        for number, status in children.run(jobs, self._processes, log):
            statuses[number] = status
        self._output.write_text(json.dumps(statuses))
        return True

    def _job(
        self, number: int, mutant: Mutant, functions: dict[tuple[str, str], list[FunctionType]]
    ) -> children.Job[int] | None:
        targets = functions.get((str(self._root / mutant.path), mutant.function), [])
        code = changed_code(mutant.applied(self._texts[mutant.path]), str(self._root / mutant.path), mutant.function)
        if not targets or code is None or any(f.__code__.co_freevars != code.co_freevars for f in targets):
            return None
        tests = self._coverage.tests_of_line(mutant.path, mutant.line)
        return children.Job(number, limit(tests, self._coverage), partial(self._try, targets, code, tests))

    def _try(self, targets: Sequence[FunctionType], code: CodeType, tests: Sequence[str]) -> int:
        for function in targets:
            function.__code__ = code
        self._in_child = True
        items: list[pytest.Item | None] = [self._items[test] for test in tests]
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                if item is not None:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except _Failure:
            return FAILED
        return PASSED


class _Failure(BaseException):
    """A test has failed."""


def functions_of(modules: Sequence[Path]) -> dict[tuple[str, str], list[FunctionType]]:
    """Return the functions of modules, by file and qualified name."""
    files = {str(path) for path in modules}
    functions: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files:
            functions[thing.__code__.co_filename, thing.__code__.co_qualname].append(thing)
    return functions


def changed_code(text: str, file: str, function: str) -> CodeType | None:
    """Return the code of a function in a changed module; None if there is not exactly one of that qualified name."""
    codes: list[CodeType] = []
    waiting = [compile(text, file, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        if code.co_qualname == function:
            codes.append(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes[0] if len(codes) == 1 else None
