"""What a row of the table may not say although it is of the right kind. Pure.

A sign that is empty is found in everything, and an expression that does not compile is found out in the middle of a
session: either would have a supervisor leave, or a message typed, without a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_READY_TIMEOUT = 86_400  # seconds that a program may have to become ready
_TEXT_LIST_KEYS = ("process_names", "instructions", "env_allow", "login_signs")


def find_errors(row: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the values of a row, each with its key. What is of the wrong kind is left to who reads it."""
    timeout = row.get("ready_timeout", 1)
    if isinstance(timeout, int) and not 0 < timeout <= MAX_READY_TIMEOUT:
        yield f"ready_timeout is {timeout}, and it is seconds, from 1 to {MAX_READY_TIMEOUT}"
    for key in _TEXT_LIST_KEYS:
        if any(isinstance(one, str) and not one.strip() for one in _as_list(row.get(key))):
            yield f"{key} has an empty word, which is found in everything"
    for table in _as_tables(row.get("dialogs")):
        if any(isinstance(said, str) and not said.strip() for said in table.values()):
            yield "dialogs has one with an empty text, which is found in everything"
    for table in _as_tables(row.get("failures")):
        yield from (f"failures: match {reason}" for reason in _expression_errors(table.get("match"), re.MULTILINE))
    yield from (f"answers {reason}" for reason in _expression_errors(row.get("answers") or None))
    for table in _as_tables(row.get("calls")):
        when = table.get("when")
        for said in (*(when.values() if isinstance(when, dict) else ()), table.get("noise") or None):
            yield from (f"calls: {reason}" for reason in _expression_errors(said))
    line = row.get("input_line")
    if line:
        yield from (f"input_line {reason}" for reason in _expression_errors(line, re.MULTILINE))
        if isinstance(line, str) and "(?P<typed>" not in line:
            yield "input_line has no group (?P<typed>…), which is what stands in the line"
    yield from (f"input_empty {reason}" for reason in _expression_errors(row.get("input_empty"), whole=True))
    usage = row.get("usage")
    if isinstance(usage, dict) and usage.get("pattern"):
        yield from (f"usage: pattern {reason}" for reason in _expression_errors(usage["pattern"]))
    codes = row.get("exit_codes")
    for code in codes if isinstance(codes, dict) else ():
        if not (code.isascii() and code.isdecimal() and int(code[:4]) <= 255):
            yield f"exit_codes has {code!r}, and a code is a number from 0 to 255"
    yield from (f"{key} has a character 0, which no program can be given" for key in row if _has_null(row[key]))


def _expression_errors(said: object, flags: int = 0, *, whole: bool = False) -> Iterator[str]:
    """``whole``: it has to fit the whole of a text, which may be empty."""
    if not isinstance(said, str):
        return
    try:
        if re.compile(said, flags).search("") and not whole:
            yield f"{said!r} matches a text without a word in it, and so everything"
    except (re.error, OverflowError, RecursionError) as error:
        yield f"{said!r} is no expression: {error}"


def _as_list(said: object) -> list[Any]:
    return said if isinstance(said, list) else []


def _as_tables(said: object) -> list[dict[str, Any]]:
    return [one for one in _as_list(said) if isinstance(one, dict)]


def _has_null(said: object) -> bool:
    if isinstance(said, dict):
        return any(_has_null(one) for one in (*said, *said.values()))
    return any(map(_has_null, said)) if isinstance(said, list) else isinstance(said, str) and "\0" in said
