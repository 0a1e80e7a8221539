"""What a session does and uses while it works, read from its files as they grow."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir
from liza.programs.usage import usage_report
from liza.programs.usage.conversation_log import ConversationUsage, find_log_files
from liza.programs.usage.tool_calls import FinishedCall, ToolCallReader
from liza.rules.errors import LizaError
from liza.rules.sessions.loop_detection import (
    Progress,
    ToolCall,
    add_call,
    forget_untimed_calls,
    record_worktree_change,
)
from liza.rules.sessions.spending import TokenUsage, estimate_usage
from liza.system.file_tail import Tail

FIRST_SEARCH_INTERVAL, LATER_SEARCH_INTERVAL = 1.0, 30.0
"""Seconds between two searches for a journal: before one is found, and afterwards, for it may go on in another file."""
CALLS_BEFORE_ESTIMATE = 5
"""Tool calls after which a program that told nothing of what it used is taken for one that tells nothing."""


@dataclass(frozen=True)
class Measurement:
    """What a session did so far. ``used`` is None while nothing is told and nothing can be estimated."""

    progress: Progress
    used: TokenUsage | None = None


class Meter:
    """Follows one session. ``steady`` is the clock that tells how far apart two calls are. Safe between threads."""

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
        self._log_usage = ConversationUsage(preset.journal, started)
        self._log_tails: dict[Path, Tail] = {}
        self._searched_at: float | None = None
        self._measured_at: float | None = None
        self._output_progress = Progress()
        self._hook_progress = Progress()

    def measure(self, pause: float) -> Measurement:
        """Read what is new. ``pause`` is that of ``after``. Raises OSError."""
        with self._lock:
            now = self._steady()
            first, before = self._measured_at is None, now if self._measured_at is None else self._measured_at
            self._measured_at = now
            self._output_progress = _add_calls(self._output_progress, list(self._output_calls()), before, now, pause)
            self._hook_progress = _add_calls(self._hook_progress, list(self._hook_calls()), before, now, pause)
            if first:
                # What lies there already was written while nobody looked, so its pace is unknown.
                self._output_progress, self._hook_progress = (
                    forget_untimed_calls(self._output_progress),
                    forget_untimed_calls(self._hook_progress),
                )
            self._read_logs(now)
            return self._metered()

    def note_worktree_change(self) -> None:
        """The worktree is another than it was."""
        with self._lock:
            now = self._steady()
            self._output_progress, self._hook_progress = (
                record_worktree_change(self._output_progress, now),
                record_worktree_change(self._hook_progress, now),
            )

    def final_usage(self) -> TokenUsage | None:
        """What the session used, once it is over. Raises OSError."""
        self._searched_at = None
        self.measure(0.0)
        with self._lock:
            told = usage_report.read_usage(self._preset.usage, self._directory.output_path)
            return self._best_usage(told)

    def _metered(self) -> Measurement:
        form = self._preset.usage
        told = usage_report.combine_usage(form, self._reported) if self._reported and not form.file else None
        return Measurement(self._progress, self._best_usage(told))

    @property
    def _progress(self) -> Progress:
        """By what the program prints; by its hooks where that tells of no tools, as at a terminal."""
        return self._output_progress if self._output_progress.calls else self._hook_progress

    def _best_usage(self, told: TokenUsage | None) -> TokenUsage | None:
        """The program's last word lacks what came after it, and its journal may lack a price."""
        found = [one for one in (told, self._log_usage.used) if one is not None]
        calls = self._progress.calls
        if not found:
            return estimate_usage(calls, self._output.size) if calls >= CALLS_BEFORE_ESTIMATE else None
        most = max(found, key=lambda one: one.tokens)
        cost = most.cost if most.cost is not None or told is None else told.cost
        return TokenUsage(input=most.input, cached=most.cached, output=most.output, cost=cost)

    def _output_calls(self) -> Iterator[FinishedCall]:
        form = self._preset.usage
        for line in self._output.lines():
            if form.form == "text" and form.pattern:
                self._reported += usage_report.usages_of_text(form, line)
            found = _parse_object(line)
            if found is None:
                continue
            if form.form == "json-lines" and (used := usage_report.usage_of_object(form, found)) is not None:
                self._reported.append(used)
            self._conversation = self._conversation or usage_report.find_session_id(form, found)
            yield from self._reader.read(found)

    def _hook_calls(self) -> Iterator[FinishedCall]:
        for line in self._hooks.lines():
            found = _parse_object(line)
            if isinstance(found, dict):
                yield FinishedCall(str(found.get("call")), "", str(found.get("words")))

    def _read_logs(self, now: float) -> None:
        if self._searched_at is None or now - self._searched_at >= (
            LATER_SEARCH_INTERVAL if self._log_tails else FIRST_SEARCH_INTERVAL
        ):
            self._searched_at = now
            for path in find_log_files(self._preset, self._conversation or self._hook_conversation(), self._environ):
                self._log_tails.setdefault(path, Tail(path))
        for tail in self._log_tails.values():
            # A journal lies in the program's own directory. One that cannot be read keeps nothing else from being read.
            with suppress(OSError):
                for line in tail.lines():
                    if (found := _parse_object(line)) is not None:
                        self._log_usage.add(found)

    def _hook_conversation(self) -> str | None:
        """The id of the conversation, as a hook of the program's said it."""
        try:
            turn = self._directory.read_turn()
        except LizaError:
            return None
        return turn.session if turn else None


def _parse_object(line: str) -> object | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found


def _add_calls(progress: Progress, finished: list[FinishedCall], before: float, now: float, pause: float) -> Progress:
    """The calls that came between two looks, spread evenly over the time between them."""
    for number, one in enumerate(finished, 1):
        when = before + (now - before) * number / len(finished)
        progress = add_call(progress, ToolCall(one.call, one.result, one.summary, when), pause)
    return progress
