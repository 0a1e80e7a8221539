"""Values of a row that are invalid although their type is right. Pure.

An empty sign matches everything, and an invalid expression would fail in the middle of a session: the supervisor would
stop, or a message would be typed, without a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_READY_TIMEOUT = 86_400  # seconds that a program may have to become ready
_TEXT_LIST_KEYS = ("process_names", "instructions", "env_allow", "login_signs")


def find_errors(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors in the values of a row, each with its key. Wrong types are reported when the row is
    converted."""
    timeout = row.get("ready_timeout", 1)
    if isinstance(timeout, int) and not 0 < timeout <= MAX_READY_TIMEOUT:
        yield f"ready_timeout is {timeout}; it must be from 1 to {MAX_READY_TIMEOUT} seconds"
    for key in _TEXT_LIST_KEYS:
        if any(isinstance(value, str) and not value.strip() for value in _as_list(row.get(key))):
            yield f"{key} has an empty entry, which matches everything"
    for table in _as_tables(row.get("dialogs")):
        if any(isinstance(value, str) and not value.strip() for value in table.values()):
            yield "dialogs has an entry with an empty text, which matches everything"
    for table in _as_tables(row.get("failures")):
        yield from (f"failures: match {reason}" for reason in _expression_errors(table.get("match"), re.MULTILINE))
    yield from (f"answers {reason}" for reason in _expression_errors(row.get("answers") or None))
    for table in _as_tables(row.get("calls")):
        when = table.get("when")
        for value in (*(when.values() if isinstance(when, dict) else ()), table.get("noise") or None):
            yield from (f"calls: {reason}" for reason in _expression_errors(value))
    line = row.get("input_line")
    if line:
        yield from (f"input_line {reason}" for reason in _expression_errors(line, re.MULTILINE))
        if isinstance(line, str) and "(?P<typed>" not in line:
            yield "input_line needs a group (?P<typed>…) for the text in the line"
    yield from (f"input_empty {reason}" for reason in _expression_errors(row.get("input_empty"), may_match_empty=True))
    usage = row.get("usage")
    if isinstance(usage, dict) and usage.get("pattern"):
        yield from (f"usage: pattern {reason}" for reason in _expression_errors(usage["pattern"]))
    acp = row.get("acp")
    for table in _as_tables(acp.get("failures") if isinstance(acp, dict) else None):
        yield from (f"acp.failures: match {reason}" for reason in _expression_errors(table.get("match"), re.MULTILINE))
    codes = row.get("exit_codes")
    for code in codes if isinstance(codes, dict) else ():
        if not (code.isascii() and code.isdecimal() and int(code[:4]) <= 255):
            yield f"exit_codes has {code!r}; an exit code is a number from 0 to 255"
    yield from (
        f"{key} has a null character, which cannot be passed to a program" for key in row if _has_null(row[key])
    )


def _expression_errors(value: object, flags: int = 0, *, may_match_empty: bool = False) -> Iterator[str]:
    """Yield the error in an expression; unless ``may_match_empty``, it must not match the empty text."""
    if not isinstance(value, str):
        return
    try:
        if re.compile(value, flags).search("") and not may_match_empty:
            yield f"{value!r} matches an empty text, and so every text"
    except (re.error, OverflowError, RecursionError) as error:
        yield f"{value!r} is not a valid regular expression: {error}"


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_tables(value: object) -> list[dict[str, Any]]:
    return [item for item in _as_list(value) if isinstance(item, dict)]


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_null(item) for item in (*value, *value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value
