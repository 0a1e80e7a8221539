"""Usage and tool calls of a running session, read from its growing files."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from liza.crew.crew import Crew
from liza.git import survey
from liza.model.configuration import Budget, Config, LoopLimits
from liza.model.errors import LizaError, NotRegularFile
from liza.model.spending import TokenUsage, estimate_usage, usage_since
from liza.model.value_classes import Value, replace
from liza.programs import event_readers, reported_figures
from liza.programs.conversation_log import find_conversation, find_log_files, find_subagent_files
from liza.programs.hooks.hook_events import TurnPhase
from liza.programs.presets.preset import Preset
from liza.programs.reported_figures import (
    ContextWindows,
    ConversationUsage,
    ReportedUsage,
)
from liza.programs.session.log_file import parse_object
from liza.programs.session.run_directory import HOOK_CALLS_FILE, Gauge, RunDir, RunRecord, Turn, read_reported_health
from liza.system import file_growth
from liza.system.file_growth import Tail
from liza.usage.ledger import conversation_usage
from liza.usage.rules.loop_detection import (
    CallReader,
    Progress,
    Stuck,
    ToolCall,
    add_call,
    check_progress,
    forget_untimed_calls,
    record_worktree_change,
)
from liza.usage.rules.telemetry_rules import TelemetrySums, is_at_least
from liza.usage.run_account import session_environ
from liza.usage.telemetry_log import TelemetryLog, find_context_usage

FIRST_SEARCH_INTERVAL, LATER_SEARCH_INTERVAL = 1.0, 30.0
"""Seconds between two searches for a conversation log: before one is found, and afterwards, because it may continue
in another file."""
CALLS_BEFORE_ESTIMATE = 5
"""Tool calls after which a program that has reported no usage counts as one that reports none."""


class Measurement(Value):
    """Progress and usage of a session so far. ``used`` is None while nothing is reported and nothing can be
    estimated; ``models`` are its parts by model, if they are known. ``context_usage`` is the used part of the context
    window, 0 to 1, as its runtime reports it or by its program's log; None if it is unknown."""

    progress: Progress
    used: TokenUsage | None = None
    models: Mapping[str, TokenUsage] = {}
    context_usage: float | None = None


class Meter:
    """Follows one session. ``steady`` is a monotonic clock, for the time between calls. ``started`` and ``ended``, if
    the session is over, have whole seconds. Thread-safe."""

    def __init__(
        self,
        preset: Preset,
        directory: RunDir,
        started: datetime,
        environ: Mapping[str, str],
        steady: Callable[[], float],
        ended: datetime | None = None,
    ) -> None:
        self._preset, self._directory, self._environ, self._steady = preset, directory, environ, steady
        self._lock = threading.Lock()
        self._output = Tail(directory.output_path)
        self._hooks = Tail(directory.path / HOOK_CALLS_FILE)
        self._reader = CallReader(preset.noise)
        self._reported: list[ReportedUsage] = []
        self._conversation: str | None = None
        self._earlier: TokenUsage | None = None
        self._telemetry_log = TelemetryLog(directory.path)
        self._telemetry: TelemetrySums | None = None
        self._windows = ContextWindows(preset.usage, preset.journal)
        self._log_usage = ConversationUsage(preset.journal, _exact_start(directory, started), ended, self._windows)
        self._log_tails: dict[Path, Tail] = {}
        self._subagent_tails: dict[Path, Tail] = {}
        self._searched_at: float | None = None
        self._subagents_searched_at = float("-inf")
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

    def final_usage(self) -> ReportedUsage | None:
        """Return the usage of a session that is over. Raises NotRegularFile, LockTimeout, OSError."""
        self._searched_at, self._subagents_searched_at = None, float("-inf")
        self.measure(0.0)
        with self._lock:
            reported = reported_figures.read_usage(self._preset.usage, self._directory.output_path)
            return self._best_usage(reported)

    @property
    def conversation(self) -> str | None:
        """The program's id of the conversation; None if it is unknown."""
        return find_conversation(self._directory, self._preset, lambda: self._conversation)

    @property
    def telemetry(self) -> TelemetrySums | None:
        """What the session's runtime reported up to the last measurement; None if it reports nothing."""
        return self._telemetry

    def _metered(self) -> Measurement:
        form = self._preset.usage
        reported = reported_figures.combine_usage(form, self._reported) if self._reported and not form.file else None
        best = self._best_usage(reported)
        used, models = (None, {}) if best is None else (best.used, best.models)
        return Measurement(self._progress, used, models, self._context_usage())

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

    def _best_usage(self, reported: ReportedUsage | None) -> ReportedUsage | None:
        """Return the largest of the reports: of the runtime, of the output, of the conversation log.

        Each is of the whole session and counts a request once, so the smaller one lacks something: the log has no
        models beside the conversation, the output has no request of a session that was killed. Each may lack a price. A
        runtime may report turns without usage. A running total of the conversation is used only without a log: what of
        it is of earlier sessions may be unknown.
        """
        log = self._log_usage.report
        if reported is not None and self._preset.usage.counts == "conversation":
            reported = self._since_start(reported) if log is None else None
        sums = self._telemetry
        telemetry = ReportedUsage(sums.used, sums.models) if sums is not None and sums.used.tokens > 0 else None
        reports = [report for report in (telemetry, reported, log) if report is not None]
        calls = self._progress.calls
        if not reports:
            is_estimated = calls >= CALLS_BEFORE_ESTIMATE
            return ReportedUsage(estimate_usage(calls, self._output.size)) if is_estimated else None
        reports.sort(key=lambda report: (report.used.tokens, bool(report.models)), reverse=True)
        cost = next((report.used.cost for report in reports if report.used.cost is not None), None)
        models = next((report.models for report in reports if report.models), {})
        return ReportedUsage(replace(reports[0].used, cost=cost), models)

    def _since_start(self, total: ReportedUsage) -> ReportedUsage:
        """Return what of a running total of the conversation its earlier sessions did not use."""
        conversation = self.conversation
        if conversation is None:
            return total
        if self._earlier is None:
            try:
                self._earlier = conversation_usage(self._directory.paths, conversation, self._directory.run)
            except (LizaError, NotRegularFile, OSError):
                return total
        return ReportedUsage(usage_since(total.used, self._earlier))

    def _output_calls(self) -> Iterator[ToolCall]:
        form = self._preset.usage
        for line in self._output.lines():
            if form.form == "text" and form.pattern:
                self._reported += map(ReportedUsage, reported_figures.usages_of_text(form, line))
            event = parse_object(line)
            if event is None:
                continue
            if form.form == "json-lines" and (used := reported_figures.report_of_object(form, event)) is not None:
                self._reported.append(used)
            self._conversation = self._conversation or reported_figures.find_session_id(form, event)
            self._windows.read_output(event)
            if self._preset.events:
                with suppress(event_readers.UnknownObject):
                    yield from self._reader.read(event_readers.read_object(self._preset.events, event))

    def _hook_calls(self) -> Iterator[ToolCall]:
        for line in self._hooks.lines():
            event = parse_object(line)
            if event is not None:
                yield ToolCall(str(event.get("call")), "", str(event.get("words")))

    def _read_logs(self, now: float) -> None:
        """Read the new lines of the conversation's log and of those of its sub-agents, which the lines may name."""
        interval = LATER_SEARCH_INTERVAL if self._log_tails else FIRST_SEARCH_INTERVAL
        if self._searched_at is None or now - self._searched_at >= interval:
            self._searched_at = now
            for path in find_log_files(self._preset, self.conversation, self._environ):
                self._log_tails.setdefault(path, Tail(path))
        for path, tail in {**self._log_tails, **self._subagent_tails}.items():
            self._read_log(path, tail)
        if now - self._subagents_searched_at >= FIRST_SEARCH_INTERVAL:
            self._subagents_searched_at = now
            while new := self._new_subagent_files():
                for path in new:
                    self._subagent_tails[path] = Tail(path)
                    self._read_log(path, self._subagent_tails[path])

    def _read_log(self, path: Path, tail: Tail) -> None:
        # The log is in the program's own directory. An unreadable one must not prevent the other measurements.
        with suppress(OSError, NotRegularFile):
            for line in tail.lines():
                if (event := parse_object(line)) is not None:
                    self._log_usage.add(event, str(path), is_subagent=path in self._subagent_tails)

    def _new_subagent_files(self) -> set[Path]:
        """Return the files of sub-agents that are not read yet. Of each sub-agent that a line names there is one."""
        files: set[Path] = set()
        for path in self._log_tails:
            files.update(find_subagent_files(self._preset, path, self.conversation))
        for name in tuple(self._log_usage.new_subagents):
            if logs := find_log_files(self._preset, name, self._environ):
                self._log_usage.new_subagents.discard(name)
                files.update(logs)
        return files - self._log_tails.keys() - self._subagent_tails.keys()


def _exact_start(directory: RunDir, started: datetime) -> datetime:
    """Return the start with its fraction of a second: the conversation's last session may have ended in that second."""
    written = directory.record_time()
    exact = started if written is None else datetime.fromtimestamp(written, UTC)
    return exact if started <= exact < started + timedelta(seconds=1) else started


def _larger(before: TelemetrySums | None, now: TelemetrySums | None) -> TelemetrySums | None:
    """Return the sums, or those before if a figure has fallen: an agent changed the file, and what was used stays
    used."""
    if before is None or now is None:
        return before or now
    has_fallen = now.turns < before.turns or not is_at_least(now.used, before.used)
    return before if has_fallen else now


def _add_calls(progress: Progress, finished: list[ToolCall], before: float, now: float, pause: float) -> Progress:
    """Add the calls that ended between two reads, with times spread evenly over the interval."""
    for number, call in enumerate(finished, 1):
        ended = before + (now - before) * number / len(finished)
        progress = add_call(progress, replace(call, at=ended), pause)
    return progress


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
    """Measures one session.

    ``post`` receives events for what may change a decision. ``end_turn`` is called with the slot and the run after each
    turn.
    """

    def __init__(
        self,
        crew: Crew,
        preset: Preset,
        directory: RunDir,
        record: RunRecord,
        environ: Mapping[str, str],
        post: Callable[[object], None] = lambda event: None,
        end_turn: Callable[[str, str], object] = lambda slot, run: None,
    ) -> None:
        self.crew, self.directory, self.post, self.end_turn = crew, directory, post, end_turn
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
        self._ended_turn: Turn | None = None

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
        self._note_turn_end()
        self._check_worktree(now)
        before, self.stuck = self.stuck, check_progress(self.limits, self._latest.progress, now)
        is_news = _severity(before) != _severity(self.stuck)
        if is_news or now - self._gauge_written_at >= GAUGE_INTERVAL:
            self._gauge_written_at = now
            self._publish(is_news)

    def _note_turn_end(self) -> None:
        """Call ``end_turn`` once after each turn of the session."""
        turn = self.directory.read_turn()
        if self.slot is None or turn is None or turn.phase != TurnPhase.IDLE or turn == self._ended_turn:
            return
        self._ended_turn = turn
        self.end_turn(self.slot, self.directory.run)

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
