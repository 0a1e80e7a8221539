"""Follow a living session in a thread: its tool calls and what it uses, as its output grows.

The loop of the supervisor decides; this only measures, and wakes the loop when the verdict may be another one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from liza.crew.crew import Crew
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import Gauge, RunDir, RunRecord
from liza.programs.usage.meter import Measurement, Meter
from liza.repo import survey
from liza.rules.errors import LizaError
from liza.rules.model import Budget, Config, LoopLimits
from liza.rules.sessions.loop_detection import Progress, Stuck, check_progress
from liza.system import file_growth

MAX_READ_INTERVAL = 2.0  # seconds without growth after which one looks all the same: a journal grows elsewhere
MIN_READ_INTERVAL = 0.2  # seconds between two looks: what comes meanwhile is read at once
GAUGE_INTERVAL = 1.0  # seconds between two figures for `status`, and for the budget
WORKTREE_CHECK_INTERVAL = 60.0
"""Seconds between two looks at the worktree of a session that calls many tools: git has to read all of it."""
MAX_FINGERPRINT_FILES = 1000
TELL_AT = 3
"""How many looks in a row fail before that is told."""


@dataclass(frozen=True)
class MeasurementChanged:
    """The event: what a session does, or has used, calls for a decision."""

    run: str


class MeterThread:
    """The measuring of one session. ``post`` hears of what may change a decision."""

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
        """What the board says that the session did: another change than one of the worktree that is progress."""
        self.stuck: Stuck | None = None
        self._meter = Meter(preset, directory, record.started, environ, crew.clock.monotonic)
        self._latest = Measurement(Progress())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = 0
        """How many looks in a row have failed."""
        self._gauge_written_at = float("-inf")
        self._gauge: Gauge | None = None
        self._posted_tokens: int | None = None
        self._worktree_fingerprint: object = None
        self._worktree_checked_at = float("-inf")

    @property
    def latest(self) -> Measurement:
        """What was measured last."""
        return self._latest

    def configure(self, config: Config) -> None:
        """Take the limits of the board as it is now."""
        self.limits, self.has_budget = config.loop, config.budget != Budget()

    def start(self) -> None:
        """Follow the session until ``stop``. Repeatable."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name=f"meter-{self.directory.run}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """The session is over."""
        self._stopped.set()

    def measure_once(self) -> None:
        """Look once. Raises OSError."""
        self._latest = self._meter.measure(self.limits.pause)
        now = self.crew.clock.monotonic()
        self._check_worktree(now)
        before, self.stuck = self.stuck, check_progress(self.limits, self._latest.progress, now)
        is_news = _severity(before) != _severity(self.stuck)
        if is_news or now - self._gauge_written_at >= GAUGE_INTERVAL:
            self._gauge_written_at = now
            self._publish(is_news)

    def _publish(self, is_news: bool) -> None:
        """Write down for `status` what changed, and wake the loop for what it may decide on."""
        used = self._latest.used
        gauge = Gauge(calls=self._latest.progress.calls, used=used, stuck=self.stuck.reason if self.stuck else None)
        if gauge == self._gauge:
            return
        self._gauge = gauge
        tokens = used.tokens if used else None
        if is_news or (self.has_budget and tokens != self._posted_tokens):
            self._posted_tokens = tokens
            self.post(MeasurementChanged(self.directory.run))
        self._note(gauge)

    def _note(self, gauge: Gauge) -> None:
        # A full disk, or what an agent put in the way.
        with suppress(OSError, LizaError):
            self.directory.write_gauge(gauge)

    def _follow(self) -> None:
        with file_growth.watch_growth(self.directory.output_path) as wait:
            while not self._stopped.is_set():
                self.measure()
                wait(MAX_READ_INTERVAL)
                self._stopped.wait(MIN_READ_INTERVAL)

    def measure(self) -> None:
        """Measure once. What fails may well go next time; where it does not, that is told once: no loop is seen and no
        budget is kept then."""
        try:
            self.measure_once()
            if self._failed >= TELL_AT:
                self._note(self._gauge or Gauge())
            self._failed = 0
        except Exception as error:  # noqa: BLE001 - nobody else would measure this session
            self._failed += 1
            if self._failed == TELL_AT:
                run, why = self.directory.run, str(error) or type(error).__name__
                line = f"unmeasured  {run}: its calls and tokens cannot be measured: {why}. Next: liza logs {run}"
                self._note(replace(self._gauge or Gauge(), unmeasured=why))
                with suppress(OSError, LizaError):
                    self.crew.append_alert_log([line])

    def _check_worktree(self, now: float) -> None:
        """Ask git whether the worktree changed, where the session has called so many tools that it matters."""
        limit, calls = self.limits.unchanged_calls, self._latest.progress.calls_since_change
        if not limit or calls * 4 < limit or now - self._worktree_checked_at < WORKTREE_CHECK_INTERVAL:
            return
        self._worktree_checked_at = now
        seen = self._fingerprint()
        if seen is None or seen != self._worktree_fingerprint:
            self._worktree_fingerprint = seen
            self._meter.note_worktree_change()
            self._latest = self._meter.measure(self.limits.pause)

    def _fingerprint(self) -> object:
        """What the worktree holds, and what the session said on the board; None where that cannot be told."""
        if self.slot is None:
            return ("no worktree", self.board_changes)
        try:
            found = survey.read_work_tree(self.crew.worktrees.slot_git(self.slot))
        except LizaError:
            return None
        digest = hashlib.sha1(usedforsecurity=False)
        for name in found.changed[:MAX_FINGERPRINT_FILES]:
            with suppress(OSError):
                state = (self.crew.paths.slot(self.slot) / name).lstat()
                digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
        return (found.head, found.changed, digest.hexdigest(), self.board_changes)


def _severity(found: Stuck | None) -> int:
    """How grave a verdict is: its words change with each call."""
    return 0 if found is None else 1 + found.final
