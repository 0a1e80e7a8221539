"""Find the first failed test in the output of a test runner, with the line that says why. Pure.

A runner prints warnings, progress and summaries around it, so the last lines of an output seldom tell the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from liza.model.value_classes import Value

MAX_LINE = 240  # characters of a line that is shown
_LAST_LINES = 8  # lines of an output in which no runner is recognized
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WARNING = re.compile(r"\bwarn(?:ing|ings)?\b|Warning\b|deprecat", re.IGNORECASE)
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Failure|Exit|Interrupt|Warning)\b(?::|$)")


class FirstFailure(Value):
    """The first failed test as its runner names it, and the line that says why; either may be empty."""

    test: str
    reason: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines to show."""
        return [line for line in (self.test, self.reason and f"  {self.reason}") if line]


_Reader = Callable[[Sequence[str]], FirstFailure | None]


def find_first_failure(output: str) -> FirstFailure | None:
    """Return the first failure that a known runner reports; None if none is recognized."""
    lines = [_COLOURS.sub("", line).rstrip() for line in output.splitlines()]
    for read in _READERS:
        failure = read(lines)
        if failure is not None:
            return FirstFailure(_shorten(failure.test), _shorten(failure.reason))
    return None


def describe_output(output: str) -> str:
    """Return what to show of a failed command: its first failure, else its last lines without warnings."""
    failure = find_first_failure(output)
    if failure is not None:
        return "\n".join(failure.lines)
    lines = [line for line in (_COLOURS.sub("", line).rstrip() for line in output.splitlines()) if line.strip()]
    telling = [line for line in lines if not _WARNING.search(line)] or lines
    return "\n".join(_shorten(line) for line in telling[-_LAST_LINES:])


def _shorten(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"


def _first(lines: Sequence[str], pattern: str, start: int = 0) -> tuple[int, re.Match[str]] | None:
    expression = re.compile(pattern)
    matches = ((number, expression.search(lines[number])) for number in range(start, len(lines)))
    return next(((number, match) for number, match in matches if match), None)


def _next_line(lines: Sequence[str], start: int, pattern: str = r"\S", most: int = 40) -> str:
    """Return the first of the next lines that matches; empty if none of ``most`` lines does."""
    return next((line.strip() for line in lines[start : start + most] if re.search(pattern, line)), "")


_PYTEST_SUMMARY = re.compile(r"^(?P<word>FAILED|ERROR) (?P<test>\S+\.py\S*(?: \S*\])?)(?: - (?P<why>.+))?$")


def _read_pytest(lines: Sequence[str]) -> FirstFailure | None:
    """The sections with the causes are in another order than the summary: errors come before failures."""
    summaries = [match for match in map(_PYTEST_SUMMARY.match, lines) if match]
    header = _first(lines, r"^_{3,} (?P<test>\S.*?) _{3,}$")
    if not summaries and header is None:
        usage = _first(lines, r"^ERROR: usage: |^usage: .*pytest")
        error = None if usage is None else _first(lines, r"error: (?P<why>.+)$", usage[0])
        return None if error is None else FirstFailure("pytest", error[1]["why"])
    reason = _first(lines, r"^E {2,}(?P<why>\S.*)$", 0 if header is None else header[0])
    name = "" if header is None else header[1]["test"].split(" ")[-1]
    own = (match for match in summaries if match["test"].endswith((name, name.replace(".", "::"))))
    summary = next(own, summaries[0] if header is None else None)
    if summary is None:
        return FirstFailure(f"FAILED {header[1]['test']}" if header else "", reason[1]["why"] if reason else "")
    return FirstFailure(f"{summary['word']} {summary['test']}", reason[1]["why"] if reason else summary["why"] or "")


def _read_unittest(lines: Sequence[str]) -> FirstFailure | None:
    head = _first(lines, r"^(?:FAIL|ERROR): (?P<test>\w\S*(?: \([\w.<>]+\))?.*)$")
    if head is None or _first(lines, r"^Ran \d+ tests? in ") is None:
        return None
    reason = next((line for line in lines[head[0] + 1 :] if _EXCEPTION.match(line)), "")
    return FirstFailure(lines[head[0]], reason)


def _read_jest(lines: Sequence[str]) -> FirstFailure | None:
    head = _first(lines, r"^\s*● (?P<test>(?!Console|Deprecation|Validation)\S.*)$")
    if head is None:
        return None
    return FirstFailure(head[1]["test"], _next_line(lines, head[0] + 1))


def _read_vitest(lines: Sequence[str]) -> FirstFailure | None:
    head = _first(lines, r"^\s*FAIL {1,2}(?P<test>\S+\.[cm]?[jt]sx?\b.*)$")
    if head is None:
        return None
    return FirstFailure(head[1]["test"], _next_line(lines, head[0] + 1, r"^\s*\w*Error\b|^\s*Error:"))


def _read_node(lines: Sequence[str]) -> FirstFailure | None:
    for pattern in (r"^\s*not ok \d+ - (?P<test>.+)$", r"^\s*✖ (?P<test>(?!failing tests).+?)(?: \([\d.]+ms\))?$"):
        head = _first(lines, pattern)
        if head is not None:
            start = head[0] + 1
            why = _next_line(lines, start, r"^\s*(?:error: |\w*Error\b|\S*Error \[)", most=len(lines))
            return FirstFailure(head[1]["test"], re.sub(r"^error: ['\"|>-]*|['\"]$", "", why))
    return None


def _read_mocha(lines: Sequence[str]) -> FirstFailure | None:
    if _first(lines, r"^\s*\d+ failing$") is None:
        return None
    start = _first(lines, r"^\s*\d+ failing$")
    head = None if start is None else _first(lines, r"^\s*1\) (?P<test>.+)$", start[0])
    if head is None:
        return None
    names = [head[1]["test"]]
    rest = [line.strip() for line in lines[head[0] + 1 : head[0] + 12] if line.strip()]
    while rest and not names[-1].endswith(":"):
        names.append(rest.pop(0))
    return FirstFailure(" ".join(names).rstrip(":"), rest[0] if rest else "")


def _read_cargo(lines: Sequence[str]) -> FirstFailure | None:
    compile_error = _first(lines, r"^error(?:\[E\d+\])?: (?!test failed|could not compile|aborting)\S.*$")
    failed = _first(lines, r"^test (?P<test>\S+)(?: - should panic)? \.\.\. FAILED$")
    if failed is not None:
        panic = _first(lines, rf"^thread '{re.escape(failed[1]['test'])}'.* panicked at (?P<why>.+)$")
        if panic is None:
            return FirstFailure(failed[1]["test"])
        message = "" if "'" in panic[1]["why"] else f" {_next_line(lines, panic[0] + 1)}"
        return FirstFailure(failed[1]["test"], f"{panic[1]['why']}{message}")
    if compile_error is None or _first(lines, r"^\s*--> |Compiling |could not compile") is None:
        return None
    return FirstFailure(lines[compile_error[0]], _next_line(lines, compile_error[0] + 1, r"^\s*--> ", most=4))


def _read_go(lines: Sequence[str]) -> FirstFailure | None:
    head = _first(lines, r"^\s*--- FAIL: (?P<test>\S+)")
    if head is not None:
        deepest = head
        while (inner := _first(lines, r"^\s+--- FAIL: (?P<test>\S+)", deepest[0] + 1)) is not None:
            if not inner[1]["test"].startswith(f"{deepest[1]['test']}/"):
                break
            deepest = inner
        around = [*lines[deepest[0] + 1 : deepest[0] + 6], *reversed(lines[max(0, head[0] - 6) : head[0]])]
        return FirstFailure(f"FAIL: {deepest[1]['test']}", _next_line(around, 0, r"^\s+\S+\.go:\d+: |^panic: "))
    build = _first(lines, r"^(?P<why>\S+\.go:\d+:\d+: .+)$")
    if build is None:
        return None
    package = next((line for line in reversed(lines[: build[0]]) if line.startswith("# ")), "# the build")
    return FirstFailure(package.removeprefix("# "), build[1]["why"])


def _read_typescript(lines: Sequence[str]) -> FirstFailure | None:
    error = _first(lines, r"^(?P<where>\S+\.[cm]?tsx?[(:]\d+[,:]\d+\)?)[: -]+(?P<why>error TS\d+: .+)$")
    return None if error is None else FirstFailure(error[1]["where"], error[1]["why"])


def _read_python(lines: Sequence[str]) -> FirstFailure | None:
    """Read the traceback of a script, or of a runner that could not start."""
    start = _first(lines, r"^Traceback \(most recent call last\):$")
    if start is None:
        return None
    reason = next((line for line in lines[start[0] + 1 :] if _EXCEPTION.match(line)), "")
    frames = [line.strip() for line in lines[start[0] :] if re.match(r'\s+File "', line)]
    return FirstFailure(frames[-1] if frames else "", reason) if reason else None


_TOOL_ERRORS = (
    r"^npm (?:ERR!|error) (?P<why>(?!code|A complete log|path |command |errno|$)\S.*)$",
    r"^(?P<why>ERROR: (?!usage)\S.*)$",
    r"^(?P<why>(?:fatal|error): \S.*)$",
    r"^(?P<why>\S+: (?:line )?\d+: .*(?:not found|No such file or directory|Permission denied).*)$",
    r"^(?P<why>\S+:\d+(?::\d+)?: (?:fatal )?error: .+)$",
    r"^(?P<why>.*\b(?:\w*Error|[Ee]rror|ERROR|FATAL|[Ff]atal)\b: \S.*)$",
    r"^(?P<why>(?:make|gmake)(?:\[\d+\])?: \*\*\* .+)$",
)


def _read_tools(lines: Sequence[str]) -> FirstFailure | None:
    """Read the first line that a tool marks as an error: a package manager, a compiler, git, make."""
    return next(_tool_errors([line for line in lines if not _WARNING.search(line)]), None)


def _tool_errors(lines: Sequence[str]) -> Iterator[FirstFailure]:
    for pattern in _TOOL_ERRORS:
        match = _first(lines, pattern)
        if match is not None:
            yield FirstFailure(match[1]["why"])


_READERS: Sequence[_Reader] = (
    _read_pytest,
    _read_unittest,
    _read_jest,
    _read_vitest,
    _read_mocha,
    _read_go,
    _read_cargo,
    _read_node,
    _read_typescript,
    _read_python,
    _read_tools,
)
