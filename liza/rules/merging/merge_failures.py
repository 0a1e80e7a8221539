"""What a failed merge said: one line that says why and names the log, and below it the end of the output. Pure."""

from __future__ import annotations

import re

from liza.rules.model import Task

_LOG = re.compile(r" \(log: (\S+)\)")


def format_failure(what: str, log: str, end: str) -> str:
    """What is said of a command that failed: ``log`` has all of its output, ``end`` is the end of it."""
    return f"{what} (log: {log})\n{end}"


def last_failure(task: Task) -> str:
    """What the last merge of the task that failed said; nothing where none failed."""
    return next((one.detail or "" for one in reversed(task.history) if one.event == "merge failed"), "").strip()


def first_line(words: str | None) -> str:
    """Why the merge failed, without the output."""
    return next(iter((words or "").strip().splitlines()), "")


def inspect_command(task: Task) -> str:
    """The command that shows all of the output of the last failure, or the task where there was no output."""
    log = _LOG.search(first_line(last_failure(task)))
    return f"less {log[1]}" if log else f"liza task show {task.id}"
