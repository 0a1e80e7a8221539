"""Measure a living session in a thread: its tool calls and its token use, as its output grows.

The thread only measures, and posts an event if the supervisor's decision may change.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from liza.breaker.rules.loop_detection import Progress, Stuck, check_progress
from liza.crew.crew import Crew
from liza.git import survey
from liza.model.errors import LizaError
from liza.model.model import Budget, Config, LoopLimits
from liza.model.value_classes import Value, replace
from liza.programs.hooks.turn_phase import TurnPhase
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import Gauge, RunDir, RunRecord, Turn
from liza.system import file_growth
from liza.tasks import run_commits
from liza.usage.meter import Measurement, Meter
from liza.usage.run_account import session_environ

MAX_READ_INTERVAL = 2.0  # seconds without growth of the output: a program's journal in another directory may grow
MIN_READ_INTERVAL = 0.2  # seconds between two reads; output in between is read in one go
GAUGE_INTERVAL = 1.0  # seconds between two figures for `status`, and for the budget
WORKTREE_CHECK_INTERVAL = 60.0
"""Seconds between two checks of the worktree: git has to read all of it."""
MAX_FINGERPRINT_FILES = 1000  # changed files whose size and time are compared
TELL_AT = 3
"""Failed measurements in a row before an alert."""


class MeasurementChanged(Value):
    """Event: the session's progress or usage calls for a new decision."""

    run: str


class MeterThread:
    """Measures one session. ``post`` receives events for what may change a decision."""

    def __init__(
        self,
        crew: Crew,
        preset: Preset,
        directory: RunDir,
        record: RunRecord,
        environ: Mapping[str, str],
        post: Callable[[object], None] = lambda event: None,
    ) -> None:
        self.crew, self.directory, self.post = crew, directory, post
        self.slot = Path(record.worktree).name if record.worktree else None
        self.record = record
        self.limits = LoopLimits()
        self.has_budget = False
        self.board_changes: object = None
        """The session's changes on the board: they count as progress as well as changes of the worktree."""
        self.stuck: Stuck | None = None
        environ = session_environ(directory, preset, environ)
        self._meter = Meter(preset, directory, record.started, environ, crew.clock.monotonic)
        self._latest = Measurement(Progress())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = 0
        """Failed measurements in a row."""
        self._gauge_written_at = float("-inf")
        self._gauge: Gauge | None = None
        self._posted_tokens: int | None = None
        self._worktree_fingerprint: object = None
        self._worktree_checked_at = float("-inf")
        self._imported_turn: Turn | None = None

    @property
    def latest(self) -> Measurement:
        """The last measurement."""
        return self._latest

    def configure(self, config: Config) -> None:
        """Take over the limits of the present board."""
        self.limits, self.has_budget = config.loop, config.budget != Budget()

    def start(self) -> None:
        """Start to measure until ``stop``. Idempotent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name=f"meter-{self.directory.run}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop to measure: the session has ended."""
        self._stopped.set()

    def measure_once(self) -> None:
        """Measure once. Raises OSError."""
        self._latest = self._meter.measure(self.limits.pause)
        now = self.crew.clock.monotonic()
        self._import_after_turn()
        self._check_worktree(now)
        before, self.stuck = self.stuck, check_progress(self.limits, self._latest.progress, now)
        is_news = _severity(before) != _severity(self.stuck)
        if is_news or now - self._gauge_written_at >= GAUGE_INTERVAL:
            self._gauge_written_at = now
            self._publish(is_news)

    def _import_after_turn(self) -> None:
        """Import what a boxed session has committed, once after each of its turns."""
        turn = self.directory.read_turn()
        if self.slot is None or turn is None or turn.phase != TurnPhase.IDLE or turn == self._imported_turn:
            return
        self._imported_turn = turn
        run_commits.try_import(self.crew, self.slot, self.directory.run)

    def _publish(self, is_news: bool) -> None:
        """Write the changed gauge for `status`, and post an event if the decision may change."""
        used = self._latest.used
        context_usage = self._latest.context_usage
        gauge = Gauge(
            calls=self._latest.progress.calls,
            used=used,
            models=dict(self._latest.models),
            stuck=self.stuck.reason if self.stuck else None,
            context_usage=context_usage,
        )
        if gauge == self._gauge:
            return
        is_news = is_news or context_usage != (self._gauge.context_usage if self._gauge else None)
        self._gauge = gauge
        tokens = used.tokens if used else None
        if is_news or (self.has_budget and tokens != self._posted_tokens):
            self._posted_tokens = tokens
            self.post(MeasurementChanged(self.directory.run))
        self._note(gauge)

    def _note(self, gauge: Gauge) -> None:
        # A full disk, or a file of the agent at this path. The gauge is only for display.
        with suppress(OSError, LizaError):
            self.directory.write_gauge(gauge)

    def _follow(self) -> None:
        with file_growth.watch_growth(self.directory.output_path) as wait:
            while not self._stopped.is_set():
                self.measure()
                wait(MAX_READ_INTERVAL)
                self._stopped.wait(MIN_READ_INTERVAL)

    def measure(self) -> None:
        """Measure once and catch failures: the next measurement may succeed.

        The TELL_AT-th failure in a row is reported once: without measurements no loop is detected and no budget
        applies.
        """
        try:
            self.measure_once()
            if self._failed >= TELL_AT:
                self._note(self._gauge or Gauge())
            self._failed = 0
        except Exception as error:  # noqa: BLE001 - the thread must survive: nothing else measures this session
            self._failed += 1
            if self._failed == TELL_AT:
                run, why = self.directory.run, str(error) or type(error).__name__
                line = f"unmeasured  {run}: its calls and tokens cannot be measured: {why}. Next: liza logs {run}"
                self._note(replace(self._gauge or Gauge(), unmeasured=why))
                with suppress(OSError, LizaError):
                    self.crew.append_alert_log([line])

    def _check_worktree(self, now: float) -> None:
        """Check whether the worktree changed, if the session made enough tool calls since its last change."""
        limit, calls = self.limits.unchanged_calls, self._latest.progress.calls_since_change
        if not limit or calls * 4 < limit or now - self._worktree_checked_at < WORKTREE_CHECK_INTERVAL:
            return
        self._worktree_checked_at = now
        fingerprint = self._fingerprint()
        if fingerprint is None or fingerprint != self._worktree_fingerprint:
            self._worktree_fingerprint = fingerprint
            self._meter.note_worktree_change()
            self._latest = self._meter.measure(self.limits.pause)

    def _fingerprint(self) -> object:
        """Return a fingerprint of the worktree and of the session's board changes; None if git fails."""
        if self.slot is None:
            return ("no worktree", self.board_changes)
        try:
            work_tree = survey.read_work_tree(self.crew.worktrees.open_git(self.slot))
        except LizaError:
            return None
        digest = hashlib.sha1(usedforsecurity=False)
        for name in work_tree.changed[:MAX_FINGERPRINT_FILES]:
            with suppress(OSError):
                state = (self.crew.paths.slot(self.slot) / name).lstat()
                digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
        return (work_tree.head, work_tree.changed, digest.hexdigest(), self.board_changes)


def _severity(verdict: Stuck | None) -> int:
    """Return the severity of a verdict, 0 to 2. Its text is not compared: it changes with each tool call."""
    return 0 if verdict is None else 1 + verdict.final
