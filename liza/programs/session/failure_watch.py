"""Follow failures of the model in the growing output and log of a running program."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from liza.model.errors import NotRegularFile
from liza.model.session_ends import SilenceKind
from liza.programs import reported_figures
from liza.programs.presets.preset import Preset
from liza.programs.rules.model_silence import MAX_REFUSALS, MAX_RETRIES
from liza.programs.session.failure_patterns import ModelFailure, ModelSigns, update_failure
from liza.system.file_growth import Tail

INITIAL_BYTES = 64 << 10
"""Bytes before the end at which reading begins, for a supervisor that adopts a session and has read nothing yet."""
MAX_BYTES = 1 << 20
"""Maximum new bytes of a file per read; of more, only the end is read."""
_VARIABLE = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^{}]*)\}")


class FailureWatch:
    """The model failures of one session's program. Times are seconds of the monotonic clock.

    ``environ`` is the session's environment, for the path of the program's log; ``is_own`` returns whether a process id
    belongs to the session.
    """

    def __init__(
        self, row: Preset, output: Path, environ: Mapping[str, str], is_own: Callable[[int], bool] | None = None
    ) -> None:
        self.row = row
        self.failure: ModelFailure | None = None
        self.failing_since: float | None = None
        """When the present failure was first seen."""
        self.has_answered = False
        """Whether a line has shown an answer of the model. The caller resets it."""
        self.has_log = bool(row.log)
        self._signs = ModelSigns(row.failures, row.answers)
        self._environ = environ
        self._is_own = is_own
        self._output = _tail(output)
        self._log: Tail | None = None
        self._session: str | None = None

    def read_new(self, steady: float, now: datetime) -> bool:
        """Read new lines. Return whether the failure or the answer changed in a way that has to be acted on or
        reported."""
        before = self._summary()
        for line in _lines(self._output):
            self._read_line(line, now)
            if self.has_log and self._session is None:
                self._session = _parse_session_id(self.row, line)
        if self._log is None and self.has_log and (self._session or "{session}" not in self.row.log):
            self._log = _tail(resolve_log_path(self.row.log, self._environ, self._session or ""))
        for line in _lines(self._log) if self._log is not None else ():
            self._read_line(line, now)
        if self.failure is None:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = steady
        return self._summary() != before

    def _read_line(self, line: str, now: datetime) -> None:
        self.failure = update_failure(self._signs, self.failure, line, now, self._is_own)
        if self.row.answers and re.match(self.row.answers, line):
            self.has_answered = True

    def _summary(self) -> tuple[object, ...]:
        failure = self.failure
        if failure is None:
            return (self.has_answered,)
        return (
            failure.kind,
            failure.message,
            failure.count >= MAX_RETRIES,
            failure.kind is SilenceKind.LOGIN and failure.count >= MAX_REFUSALS,
        )


def _tail(path: Path) -> Tail:
    return Tail(path, first=INITIAL_BYTES, most=MAX_BYTES, anew=True)


def _lines(tail: Tail) -> Iterator[str]:
    """Yield the new lines; none if the file cannot be read."""
    with suppress(OSError, NotRegularFile):
        yield from tail.lines()


def resolve_log_path(template: str, environ: Mapping[str, str], session: str) -> Path:
    """Return the path of a program's own log: ``${NAME:-default}`` is a variable, ``~`` the home directory."""
    expanded = _VARIABLE.sub(lambda match: environ.get(match["name"]) or match["default"], template)
    return Path(expanded.replace("{session}", session.replace("/", "_"))).expanduser()


def _parse_session_id(row: Preset, line: str) -> str | None:
    if not line.startswith("{"):
        return None
    try:
        return reported_figures.find_session_id(row.usage, json.loads(line))
    except (ValueError, RecursionError):
        return None
