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
from liza.programs.session.run_directory import HOOK_CALLS, RunDir
from liza.programs.usage import usage_report
from liza.programs.usage.conversation_log import Reading, files
from liza.programs.usage.tool_calls import FinishedCall, Reader
from liza.rules.errors import LizaError
from liza.rules.sessions.loop_detection import Progress, ToolCall, after, changed, rested
from liza.rules.sessions.spending import Used, estimate
from liza.system.file_tail import Tail

SEEK_FIRST, SEEK_LATER = 1.0, 30.0
"""Seconds between two searches for a journal: before one is found, and afterwards, for it may go on in another file."""
PATIENCE = 5
"""Tool calls after which a program that told nothing of what it used is taken for one that tells nothing."""


@dataclass(frozen=True)
class Metered:
    """What a session did so far. ``used`` is None while nothing is told and nothing can be estimated."""

    progress: Progress
    used: Used | None = None


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
        self._guard = threading.Lock()
        self._output = Tail(directory.output)
        self._hooks = Tail(directory.path / HOOK_CALLS)
        self._reader = Reader(preset.calls)
        self._told: list[Used] = []
        self._conversation: str | None = None
        self._reading = Reading(preset.journal, started)
        self._journals: dict[Path, Tail] = {}
        self._sought: float | None = None
        self._looked: float | None = None
        self._by_output = Progress()
        self._by_hooks = Progress()

    def look(self, pause: float) -> Metered:
        """Read what is new. ``pause`` is that of ``after``. Raises OSError."""
        with self._guard:
            now = self._steady()
            first, before = self._looked is None, now if self._looked is None else self._looked
            self._looked = now
            self._by_output = _folded(self._by_output, list(self._finished()), before, now, pause)
            self._by_hooks = _folded(self._by_hooks, list(self._hooked()), before, now, pause)
            if first:
                # What lies there already was written while nobody looked, so its pace is unknown.
                self._by_output, self._by_hooks = rested(self._by_output), rested(self._by_hooks)
            self._read_journals(now)
            return self._metered()

    def worktree_changed(self) -> None:
        """The worktree is another than it was."""
        with self._guard:
            now = self._steady()
            self._by_output, self._by_hooks = changed(self._by_output, now), changed(self._by_hooks, now)

    def final(self) -> Used | None:
        """What the session used, once it is over. Raises OSError."""
        self._sought = None
        self.look(0.0)
        with self._guard:
            told = usage_report.used(self._preset.usage, self._directory.output)
            return self._best(told)

    def _metered(self) -> Metered:
        form = self._preset.usage
        told = usage_report.joined(form, self._told) if self._told and not form.file else None
        return Metered(self._progress, self._best(told))

    @property
    def _progress(self) -> Progress:
        """By what the program prints; by its hooks where that tells of no tools, as at a terminal."""
        return self._by_output if self._by_output.calls else self._by_hooks

    def _best(self, told: Used | None) -> Used | None:
        """The program's last word lacks what came after it, and its journal may lack a price."""
        found = [one for one in (told, self._reading.used) if one is not None]
        calls = self._progress.calls
        if not found:
            return estimate(calls, self._output.size) if calls >= PATIENCE else None
        most = max(found, key=lambda one: one.tokens)
        cost = most.cost if most.cost is not None or told is None else told.cost
        return Used(input=most.input, cached=most.cached, output=most.output, cost=cost)

    def _finished(self) -> Iterator[FinishedCall]:
        form = self._preset.usage
        for line in self._output.lines():
            if form.form == "text" and form.pattern:
                self._told += usage_report.of_text(form, line)
            found = _object(line)
            if found is None:
                continue
            if form.form == "json-lines" and (used := usage_report.of_object(form, found)) is not None:
                self._told.append(used)
            self._conversation = self._conversation or usage_report.session_in(form, found)
            yield from self._reader.read(found)

    def _hooked(self) -> Iterator[FinishedCall]:
        for line in self._hooks.lines():
            found = _object(line)
            if isinstance(found, dict):
                yield FinishedCall(str(found.get("call")), "", str(found.get("words")))

    def _read_journals(self, now: float) -> None:
        if self._sought is None or now - self._sought >= (SEEK_LATER if self._journals else SEEK_FIRST):
            self._sought = now
            for path in files(self._preset, self._conversation or self._by_hook(), self._environ):
                self._journals.setdefault(path, Tail(path))
        for tail in self._journals.values():
            # A journal lies in the program's own directory. One that cannot be read keeps nothing else from being read.
            with suppress(OSError):
                for line in tail.lines():
                    if (found := _object(line)) is not None:
                        self._reading.read(found)

    def _by_hook(self) -> str | None:
        """The id of the conversation, as a hook of the program's said it."""
        try:
            turn = self._directory.turn()
        except LizaError:
            return None
        return turn.session if turn else None


def _object(line: str) -> object | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found


def _folded(progress: Progress, finished: list[FinishedCall], before: float, now: float, pause: float) -> Progress:
    """The calls that came between two looks, spread evenly over the time between them."""
    for number, one in enumerate(finished, 1):
        when = before + (now - before) * number / len(finished)
        progress = after(progress, ToolCall(one.call, one.result, one.words, when), pause)
    return progress
