"""Usage and tool calls of a running session, read from its growing files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from liza.programs.presets.preset import Preset
from liza.programs.session.reported_health import read_reported_health
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir
from liza.programs.usage import usage_report
from liza.programs.usage.context_usage import find_context_usage
from liza.programs.usage.conversation_log import ConversationUsage, find_log_files
from liza.programs.usage.telemetry_log import TelemetryLog
from liza.programs.usage.tool_calls import FinishedCall, ToolCallReader
from liza.rules.errors import LizaError, NotRegularFile
from liza.rules.sessions.loop_detection import (
    Progress,
    ToolCall,
    add_call,
    forget_untimed_calls,
    record_worktree_change,
)
from liza.rules.sessions.spending import TokenUsage, estimate_usage
from liza.rules.value_classes import Value
from liza.rules.worker_api.telemetry_rules import TelemetrySums, is_at_least
from liza.system.file_growth import Tail

FIRST_SEARCH_INTERVAL, LATER_SEARCH_INTERVAL = 1.0, 30.0
"""Seconds between two searches for a conversation log: before one is found, and afterwards, because it may continue
in another file."""
CALLS_BEFORE_ESTIMATE = 5
"""Tool calls after which a program that has reported no usage counts as one that reports none."""


class Measurement(Value):
    """Progress and usage of a session so far. ``used`` is None while nothing is reported and nothing can be
    estimated. ``context_usage`` is the used part of the context window, 0 to 1, as its runtime reports it or by its
    program's log; None if it is unknown."""

    progress: Progress
    used: TokenUsage | None = None
    context_usage: float | None = None


class Meter:
    """Follows one session. ``steady`` is a monotonic clock, for the time between calls. Thread-safe."""

    def __init__(
        self,
        preset: Preset,
        directory: RunDir,
        started: datetime,
        environ: Mapping[str, str],
        steady: Callable[[], float],
    ) -> None:
        self._preset, self._directory, self._environ, self._steady = preset, directory, environ, steady
        self._lock = threading.Lock()
        self._output = Tail(directory.output_path)
        self._hooks = Tail(directory.path / HOOK_CALLS_FILE)
        self._reader = ToolCallReader(preset.calls)
        self._reported: list[TokenUsage] = []
        self._conversation: str | None = None
        self._telemetry_log = TelemetryLog(directory.path)
        self._telemetry: TelemetrySums | None = None
        self._log_usage = ConversationUsage(preset.journal, started)
        self._log_tails: dict[Path, Tail] = {}
        self._searched_at: float | None = None
        self._measured_at: float | None = None
        self._output_progress = Progress()
        self._hook_progress = Progress()

    def measure(self, pause: float) -> Measurement:
        """Read new data. ``pause`` is passed on to ``loop_detection.add_call``.

        Raises NotRegularFile, LockTimeout, OSError.
        """
        with self._lock:
            now = self._steady()
            first, before = self._measured_at is None, now if self._measured_at is None else self._measured_at
            self._measured_at = now
            self._output_progress = _add_calls(self._output_progress, list(self._output_calls()), before, now, pause)
            self._hook_progress = _add_calls(self._hook_progress, list(self._hook_calls()), before, now, pause)
            if first:
                # Calls before the first read have no known times, so their rate is unknown.
                self._output_progress, self._hook_progress = (
                    forget_untimed_calls(self._output_progress),
                    forget_untimed_calls(self._hook_progress),
                )
            self._telemetry = _larger(self._telemetry, self._telemetry_log.read())
            if self._telemetry is None:
                self._read_logs(now)
            return self._metered()

    def note_worktree_change(self) -> None:
        """Record that the worktree has changed."""
        with self._lock:
            now = self._steady()
            self._output_progress, self._hook_progress = (
                record_worktree_change(self._output_progress, now),
                record_worktree_change(self._hook_progress, now),
            )

    def final_usage(self) -> TokenUsage | None:
        """Return the usage of a session that is over. Raises NotRegularFile, LockTimeout, OSError."""
        self._searched_at = None
        self.measure(0.0)
        with self._lock:
            reported = usage_report.read_usage(self._preset.usage, self._directory.output_path)
            return self._best_usage(reported)

    @property
    def telemetry(self) -> TelemetrySums | None:
        """What the session's runtime reported up to the last measurement; None if it reports nothing."""
        return self._telemetry

    def _metered(self) -> Measurement:
        form = self._preset.usage
        reported = usage_report.combine_usage(form, self._reported) if self._reported and not form.file else None
        return Measurement(self._progress, self._best_usage(reported), self._context_usage())

    def _context_usage(self) -> float | None:
        try:
            health = read_reported_health(self._directory)
        except LizaError:
            # The agent can write this file, and the other figures do not depend on it.
            health = None
        reported = find_context_usage(self._telemetry, health)
        return reported if reported is not None else self._log_usage.context_usage

    @property
    def _progress(self) -> Progress:
        """Progress by the program's output; by its hooks if the output reports no tool calls, as in a terminal."""
        return self._output_progress if self._output_progress.calls else self._hook_progress

    def _best_usage(self, reported: TokenUsage | None) -> TokenUsage | None:
        """Return the largest of the reports: of the runtime, of the output, of the conversation log.

        Each is of the whole session, and each may be early or lack a price. A runtime may report turns without usage.
        """
        telemetry = self._telemetry.used if self._telemetry is not None and self._telemetry.used.tokens > 0 else None
        reports = [usage for usage in (telemetry, reported, self._log_usage.used) if usage is not None]
        calls = self._progress.calls
        if not reports:
            return estimate_usage(calls, self._output.size) if calls >= CALLS_BEFORE_ESTIMATE else None
        most = max(reports, key=lambda usage: usage.tokens)
        cost = next((usage.cost for usage in (most, *reports) if usage.cost is not None), None)
        return TokenUsage(input=most.input, cached=most.cached, output=most.output, cost=cost)

    def _output_calls(self) -> Iterator[FinishedCall]:
        form = self._preset.usage
        for line in self._output.lines():
            if form.form == "text" and form.pattern:
                self._reported += usage_report.usages_of_text(form, line)
            event = _parse_object(line)
            if event is None:
                continue
            if form.form == "json-lines" and (used := usage_report.usage_of_object(form, event)) is not None:
                self._reported.append(used)
            self._conversation = self._conversation or usage_report.find_session_id(form, event)
            yield from self._reader.read(event)

    def _hook_calls(self) -> Iterator[FinishedCall]:
        for line in self._hooks.lines():
            event = _parse_object(line)
            if isinstance(event, dict):
                yield FinishedCall(str(event.get("call")), "", str(event.get("words")))

    def _read_logs(self, now: float) -> None:
        if self._searched_at is None or now - self._searched_at >= (
            LATER_SEARCH_INTERVAL if self._log_tails else FIRST_SEARCH_INTERVAL
        ):
            self._searched_at = now
            for path in find_log_files(self._preset, self._conversation or self._reported_id(), self._environ):
                self._log_tails.setdefault(path, Tail(path))
        for tail in self._log_tails.values():
            # The log is in the program's own directory. An unreadable one must not prevent the other measurements.
            with suppress(OSError, NotRegularFile):
                for line in tail.lines():
                    if (event := _parse_object(line)) is not None:
                        self._log_usage.add(event)

    def _reported_id(self) -> str | None:
        """Return the id of the conversation, as a hook or a command of the session reported it."""
        try:
            turn = self._directory.read_turn()
            return (turn.session if turn else None) or self._directory.read_conversation()
        except (LizaError, OSError):
            return None


def _larger(before: TelemetrySums | None, now: TelemetrySums | None) -> TelemetrySums | None:
    """Return the sums, or those before if a figure has fallen: an agent changed the file, and what was used stays
    used."""
    if before is None or now is None:
        return before or now
    has_fallen = now.turns < before.turns or not is_at_least(now.used, before.used)
    return before if has_fallen else now


def _parse_object(line: str) -> object | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value


def _add_calls(progress: Progress, finished: list[FinishedCall], before: float, now: float, pause: float) -> Progress:
    """Add the calls that ended between two reads, with times spread evenly over the interval."""
    for number, call in enumerate(finished, 1):
        ended = before + (now - before) * number / len(finished)
        progress = add_call(progress, ToolCall(call.call, call.result, call.summary, ended), pause)
    return progress
