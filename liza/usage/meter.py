"""Usage and tool calls of a running session, read from its growing files."""

from __future__ import annotations

import glob
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from liza.breaker.rules.loop_detection import Progress, ToolCall, add_call, forget_untimed_calls, record_worktree_change
from liza.briefs.quoting import MESSAGE_PREFIX
from liza.model.errors import LizaError, NotRegularFile
from liza.model.paths import BOXES
from liza.model.spending import TokenUsage, estimate_usage, usage_since
from liza.model.value_classes import Value, replace
from liza.programs import usage_report
from liza.programs.presets.preset import ConversationLogFormat, Preset, ToolCallFormat, UsageFormat
from liza.programs.session.log_file import parse_object
from liza.programs.session.reported_health import read_reported_health
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir
from liza.programs.usage_report import ReportedUsage, is_id, time_of, usage_of_object, usage_of_request, value_at
from liza.system.file_growth import Tail
from liza.usage.call_digest import digest, summarize_call
from liza.usage.context_windows import ContextWindows
from liza.usage.ledger import conversation_usage
from liza.usage.rules.telemetry_rules import TelemetrySums, is_at_least
from liza.usage.telemetry_log import TelemetryLog, find_context_usage

FIRST_SEARCH_INTERVAL, LATER_SEARCH_INTERVAL = 1.0, 30.0
"""Seconds between two searches for a conversation log: before one is found, and afterwards, because it may continue
in another file."""
MAX_MODEL_LENGTH = 200  # characters
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
        self._reader = ToolCallReader(preset.calls)
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
            reported = usage_report.read_usage(self._preset.usage, self._directory.output_path)
            return self._best_usage(reported)

    @property
    def conversation(self) -> str | None:
        """The program's id of the conversation; None if it is unknown."""
        return self._conversation or self._reported_id()

    @property
    def telemetry(self) -> TelemetrySums | None:
        """What the session's runtime reported up to the last measurement; None if it reports nothing."""
        return self._telemetry

    def _metered(self) -> Measurement:
        form = self._preset.usage
        reported = usage_report.combine_usage(form, self._reported) if self._reported and not form.file else None
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

    def _output_calls(self) -> Iterator[FinishedCall]:
        form = self._preset.usage
        for line in self._output.lines():
            if form.form == "text" and form.pattern:
                self._reported += map(ReportedUsage, usage_report.usages_of_text(form, line))
            event = parse_object(line)
            if event is None:
                continue
            if form.form == "json-lines" and (used := usage_report.report_of_object(form, event)) is not None:
                self._reported.append(used)
            self._conversation = self._conversation or usage_report.find_session_id(form, event)
            self._windows.read_output(event)
            yield from self._reader.read(event)

    def _hook_calls(self) -> Iterator[FinishedCall]:
        for line in self._hooks.lines():
            event = parse_object(line)
            if event is not None:
                yield FinishedCall(str(event.get("call")), "", str(event.get("words")))

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

    def _reported_id(self) -> str | None:
        """Return the id of the conversation, as a hook or a command of the session reported it."""
        try:
            turn = self._directory.read_turn()
            return (turn.session if turn else None) or self._directory.read_conversation()
        except (LizaError, OSError):
            return None


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


def _add_calls(progress: Progress, finished: list[FinishedCall], before: float, now: float, pause: float) -> Progress:
    """Add the calls that ended between two reads, with times spread evenly over the interval."""
    for number, call in enumerate(finished, 1):
        ended = before + (now - before) * number / len(finished)
        progress = add_call(progress, ToolCall(call.call, call.result, call.summary, ended), pause)
    return progress


SHORT_ID_LENGTH = 8


def find_log_files(preset: Preset, conversation: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of a conversation; none if the id is invalid."""
    form = preset.journal
    if not form.file or conversation is None or not is_id(conversation):
        return ()
    config = _find_config_directory(preset, environ)
    if config is None:
        return ()
    values = {"{config}": config, "{id}": conversation, "{short}": conversation[:SHORT_ID_LENGTH]}
    pattern = form.file
    for name, value in values.items():
        pattern = pattern.replace(name, glob.escape(value))
    # Path.glob does not accept absolute patterns.
    paths = (Path(path) for path in sorted(glob.glob(pattern)))  # noqa: PTH207
    return tuple(path for path in paths if not _leads_out_of_box(path))


def _find_config_directory(preset: Preset, environ: Mapping[str, str]) -> str | None:
    """Return the program's configuration directory: that of a variable, or the one below HOME."""
    if own := environ.get(preset.config_dir_env) if preset.config_dir_env else None:
        return own
    config = Path("~") / preset.journal.config
    for row in preset.state:
        if (named := environ.get(row.variable) if row.variable else None) and config.is_relative_to(row.path):
            return str(Path(named) / config.relative_to(row.path))
    home = environ.get("HOME")
    return None if home is None else str(Path(home) / preset.journal.config)


def _leads_out_of_box(path: Path) -> bool:
    """Return whether a path leads through a directory of a box that is a link."""
    boxes = next((parent for parent in path.parents if parent.name == BOXES), None)
    return boxes is not None and any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(boxes))


def find_subagent_files(preset: Preset, log: Path, conversation: str | None) -> tuple[Path, ...]:
    """Return the files of the sub-agents of a conversation with this log; none if the id is invalid."""
    form = preset.journal
    if not form.subagents or conversation is None or not is_id(conversation):
        return ()
    pattern = form.subagents.replace("{dir}", glob.escape(str(log.parent))).replace("{id}", glob.escape(conversation))
    paths = (Path(path) for path in glob.glob(pattern))  # noqa: PTH207
    return tuple(path for path in paths if not _leads_out_of_box(path))


MAX_SUBAGENTS = 1000
"""Maximum number of sub-agents whose logs are waited for: an agent can write their names."""


class ConversationUsage:
    """Adds up the usage in the lines of a conversation's logs, without those of earlier and later sessions."""

    def __init__(
        self,
        form: ConversationLogFormat,
        started: datetime,
        ended: datetime | None = None,
        windows: ContextWindows | None = None,
    ) -> None:
        self._form = form
        self._windows = windows or ContextWindows(UsageFormat(), form)
        self._started = started
        self._end = None if ended is None else ended + timedelta(seconds=1)
        self._requests: dict[str, tuple[str, TokenUsage]] = {}
        """Model and usage, by the name of the request, or by file and model for running totals."""
        self._totals: dict[str, TokenUsage] = {}
        """The newest running total, by file."""
        self._models: dict[str, str] = {}
        """The model that a line has named last, by file."""
        self._report: ReportedUsage | None = None
        self.new_subagents: set[str] = set()
        """Ids of the conversations of sub-agents that were named, and whose logs are not found yet."""
        self._newest: tuple[int, Any, str] | None = None
        """Tokens, window and model of the newest request of the conversation itself, as logged."""

    def add(self, event: Any, file: str = "", *, is_subagent: bool = False) -> None:
        """Add one object of a log."""
        form = self._form
        if form.model and isinstance(model := value_at(event, form.model), str):
            self._models[file] = model[:MAX_MODEL_LENGTH]
        when = time_of(value_at(event, form.time)) if form.time else None
        if when is not None and self._end is not None and when >= self._end:
            return
        is_older = when is not None and when < self._started
        if form.subagent_ids and not is_older:
            names = [
                name for path in form.subagent_ids for name in _list(value_at(event, path)) if isinstance(name, str)
            ]
            self.new_subagents.update(names[: MAX_SUBAGENTS - len(self.new_subagents)])
        used = usage_of_object(form, event)
        if used is None:
            return
        if form.counts == "conversation":
            used = self._count_on(used, file)
        if is_older:
            return
        self._put(event, used, file)
        nested = is_subagent or (form.nested and value_at(event, form.nested))
        request = usage_of_request(form, event) if form.request.input else None
        tokens = used.tokens if request is None else request.tokens
        if tokens and not nested:
            # A message that the program writes itself has no tokens.
            window = value_at(event, form.window) if form.window else None
            self._newest = tokens, window, self._models.get(file, "")

    def _count_on(self, total: TokenUsage, file: str) -> TokenUsage:
        """Return what a running total adds to the one before."""
        before = self._totals.get(file, TokenUsage())
        self._totals[file] = total
        return usage_since(total, before)

    def _put(self, event: Any, used: TokenUsage, file: str) -> None:
        model = self._models.get(file, "")
        is_total = self._form.counts == "conversation"
        name = value_at(event, self._form.key) if self._form.key and not is_total else None
        key = f"{file} {model}" if is_total else f" {len(self._requests)}" if name is None else str(name)
        before = self._requests.get(key)
        if is_total and before is not None:
            used = before[1] + used
        self._requests[key] = model, used
        if before is None and self._report is not None:
            # A sum over all requests for each new one would take 40 ms after 10,000.
            self._report += _report_of(model, used)
        elif before != (model, used):
            self._report = None

    @property
    def report(self) -> ReportedUsage | None:
        """The usage of all requests; None before the first."""
        if self._report is None and self._requests:
            reports = itertools.starmap(_report_of, self._requests.values())
            self._report = sum(reports, ReportedUsage(TokenUsage()))
        return self._report

    @property
    def context_usage(self) -> float | None:
        """The part of the context window that the newest request used, 0 to 1; None if the window is unknown, or cannot
        be the model's: more is in it."""
        if self._newest is None:
            return None
        tokens, logged, model = self._newest
        window = self._windows.find(logged, model)
        return tokens / window if window is not None and tokens <= window else None


def _report_of(model: str, used: TokenUsage) -> ReportedUsage:
    return ReportedUsage(used, {model: used} if model and used.tokens else {})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


MAX_OPEN_CALLS = 256
"""Maximum number of calls without an end that are kept, to limit memory: a program may never report the ends."""
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?(?:ms|µs|s|sec|secs|seconds?|min|minutes?)\b|0x[0-9a-f]{6,}"
)
"""Clock times, durations and addresses: they may differ in two equal results."""


class FinishedCall(Value):
    """A tool call that has ended: digests of the call and of its result, and a summary for a person."""

    call: str
    result: str
    summary: str


class ToolCallReader:
    """Reads tool calls from the objects of an output, in order."""

    def __init__(self, forms: Sequence[ToolCallFormat]) -> None:
        self._forms = forms
        self._open: dict[str, tuple[str, str]] = {}
        self._last: dict[str, str] = {}

    def read(self, event: Any) -> Iterator[FinishedCall]:
        """Yield the tool calls that ``event`` reports as ended."""
        for form in self._forms:
            within = value_at(event, form.each) if form.each else event
            for entry in within if isinstance(within, list) else (within,):
                if isinstance(entry, dict) and _matches(form, event, entry):
                    yield from self._read_entry(form, entry)

    def _read_entry(self, form: ToolCallFormat, entry: Mapping[str, Any]) -> Iterator[FinishedCall]:
        name = str(value_at(entry, form.id))
        if form.call:
            called = [value_at(entry, path) for path in form.call]
            self._open[name] = digest(called), summarize_call(called)
            if len(self._open) > MAX_OPEN_CALLS:
                del self._open[next(iter(self._open))]
        if form.result and name in self._open:
            call, summary = self._open.pop(name)
            yield FinishedCall(
                call,
                self._result(call, [_without_noise(value_at(entry, path), form.noise) for path in form.result]),
                summary,
            )

    def _result(self, call: str, texts: list[str]) -> str:
        """Return the digest of a result.

        If a hook has added a message of Liza's, return the digest of the call's last result: a loop warning must not
        reset the loop count.
        """
        if not any(MESSAGE_PREFIX in text for text in texts):
            self._last.pop(call, None)
            self._last[call] = digest(texts)
            if len(self._last) > MAX_OPEN_CALLS:
                del self._last[next(iter(self._last))]
        return self._last.get(call) or digest(texts)


def _matches(form: ToolCallFormat, event: Any, entry: Mapping[str, Any]) -> bool:
    """Return whether the object, or the entry of its list, has the values that the form requires."""
    for path, wanted in form.when.items():
        value = value_at(entry, path) if form.each else None
        value = value_at(event, path) if value is None else value
        if not re.fullmatch(wanted, str(value)):
            return False
    return True


def _without_noise(value: Any, noise: str) -> str:
    """Return a result without the parts that differ every time."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return _TIMES.sub("", re.sub(noise, "", text) if noise else text)
