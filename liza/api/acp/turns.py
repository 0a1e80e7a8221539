"""The turns of the sidecar: its queue of prompts, what it remembers of a running turn, and what it reports.

The output is one JSON object per line, in the same form for every program. Types:
session, prompt, text, thought, tool_call, tool_result, permission, usage, context, turn, failure, notice, exit.
`programs/presets/acp_session.py` says how usage, tool calls and failures are read from them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import msgspec

from liza.api.acp.rules import (
    CallStatus,
    ToolBook,
    ToolRequest,
    TurnContent,
    UsageCounts,
    UsageScope,
    add_counts,
    choose_option,
    compose_outcome,
    share_of_turn,
)
from liza.api.health import TelemetryAnswer, TelemetryRequest, record_telemetry
from liza.api.lifecycle import LifecycleAnswer, LifecycleRequest, report_lifecycle
from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA, DeliveryEvent, Message, MessageChannel, PromptPriority
from liza.guards.session_guards import AuthorizeAnswer, AuthorizeRequest, GuardsCache, judge_request
from liza.model.spending import TokenUsage
from liza.model.value_classes import Mutable, Value, field, replace
from liza.programs import reported_figures
from liza.programs.presets.preset import AcpUsage, UsageFormat
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.programs.session.run_directory import RunDir, TurnSource
from liza.system import crash_points, file_growth
from liza.text.quoting import NOTE_PREFIX, quote_lines
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage
from liza.usage.telemetry_log import TelemetryLog

MAX_LAST_TEXT = 20_000
"""Characters of the text after the last tool call that are kept, to search it for a failure."""


class RunningTurn(Mutable):
    """One turn, by the id of its session/prompt. Times are seconds of the monotonic clock.

    ``spared``: processes below the program that ran before the turn. ``refused``: number of refused tool calls;
    ``begun_calls``: when each tool call began. ``messages``: the ids of the messages in its prompt; ``text``: the part
    of the prompt that is no message, and stored nowhere.
    """

    request: int
    book: ToolBook
    number: int
    last_update: float
    spared: frozenset[int] = frozenset()
    messages: tuple[str, ...] = ()
    text: str = ""
    cancelled_at: float | None = None
    last_text: str = ""
    is_empty: bool = True
    is_acknowledged: bool = False
    refused: int = 0
    used: UsageCounts = UsageCounts()
    begun_calls: dict[str, float] = field(default_factory=dict)
    calls: list[ReportedCall] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Add text of the model."""
        self.is_empty = self.is_empty and not text.strip()
        self.last_text = (self.last_text + text)[-MAX_LAST_TEXT:]

    def add_tool(self) -> None:
        """Record a tool call: the text before it is not the last of the turn."""
        self.is_empty, self.last_text = False, ""

    def content(self) -> TurnContent:
        """Return what the turn has shown."""
        return TurnContent(self.last_text, self.is_empty, self.cancelled_at is not None)


CANCELLED = compose_outcome(None)
NO_ANSWER = "Liza could not decide whether this may run ({error}), so it is refused. Call `liza block` if you need it."


class PermissionAnswer(Value):
    """The result to send to the program, and the reason that the model has to be told, or None."""

    result: dict[str, Any]
    reason: str | None = None


class ToolUpdates:
    """Handles the tool calls of one run."""

    def __init__(self, run: str, surfaces: WorkerSurfaces, lines: OutputLines) -> None:
        self._run, self._surfaces, self._lines = run, surfaces, lines

    def update(self, turn: RunningTurn, call: dict[str, Any]) -> None:
        """Take over an update of a call: print the call once it is known, and its result when it is over."""
        name = turn.book.add(call)
        status = turn.book.status(name)
        is_over = status in tuple(CallStatus)
        if turn.book.describe(name).input or is_over:
            self._begin(turn, name)
        if is_over:
            self._end(turn, name, status)
        turn.add_tool()

    def answer(self, turn: RunningTurn | None, params: dict[str, Any]) -> PermissionAnswer:
        """Decide a permission request. Without a turn, or in a cancelled one, the protocol wants ``cancelled``."""
        if turn is None or turn.cancelled_at is not None:
            return PermissionAnswer(CANCELLED)
        call = params.get("toolCall")
        name = turn.book.add(call if isinstance(call, dict) else {})
        self._begin(turn, name)
        turn.add_tool()
        tool = turn.book.describe(name)
        answer = self._authorize(tool)
        options = params.get("options")
        option = choose_option(options if isinstance(options, list) else [], allowed=answer.allowed)
        self._lines.write(
            "permission", id=name, tool=tool.tool, allowed=answer.allowed, rule=answer.rule, reason=answer.reason
        )
        if answer.allowed and option is not None:
            return PermissionAnswer(compose_outcome(option))
        self._end(turn, name, CallStatus.FAILED)
        turn.refused += 1
        reason = answer.reason if not answer.allowed else "its program offers no way to allow it once"
        return PermissionAnswer(compose_outcome(option), f"{_describe(tool)}: {reason or 'it is not allowed'}")

    def _authorize(self, tool: ToolRequest) -> AuthorizeAnswer:
        """Ask the guards. An error is a refusal."""
        try:
            return self._surfaces.authorize(AuthorizeRequest(run_id=self._run, tool=tool.tool, input=tool.input))
        except Exception as error:  # noqa: BLE001 - fail closed, whatever the error is
            return AuthorizeAnswer(allowed=False, reason=NO_ANSWER.format(error=error or type(error).__name__))

    def _begin(self, turn: RunningTurn, name: str) -> None:
        if name in turn.begun_calls:
            return
        turn.begun_calls[name] = time.monotonic()
        tool = turn.book.describe(name)
        self._lines.write("tool_call", id=name, tool=tool.tool, title=tool.title, input=tool.input)

    def _end(self, turn: RunningTurn, name: str, status: str) -> None:
        tool, output = turn.book.describe(name), turn.book.output(name)
        began = turn.begun_calls.get(name)
        turn.book.close(name)
        if began is None:
            return
        milliseconds = int((time.monotonic() - began) * 1000)
        is_success = status == CallStatus.COMPLETED
        turn.calls.append(ReportedCall(name=tool.tool, success=is_success, duration_ms=milliseconds))
        self._lines.write("tool_result", id=name, status=status, output=shorten_output(output), ms=milliseconds)


def _describe(tool: ToolRequest) -> str:
    """Return the call in a few words: the command, the file, or its title."""
    words = str(tool.input.get("command") or tool.input.get("path") or tool.title or tool.tool)
    return f"`{words[:500]}`"


IN_ANSWER, IN_UPDATES = "answer", "updates"


class UsageUpdates:
    """Reads the usage of one conversation. ``context``: used part of the context window, 0 to 1; None: unknown."""

    def __init__(self, settings: AcpUsage) -> None:
        self._settings = settings
        self._form = UsageFormat(input=settings.input, cached=settings.cached, output=settings.output)
        self._earlier = UsageCounts()
        self._has_begun = False
        self._cost: float | None = None
        self._earlier_cost = 0.0
        self.context: float | None = None

    def count_from(self, earlier: TokenUsage) -> None:
        """Set what earlier sessions of a loaded conversation used, if the program's figures have it."""
        if UsageScope(self._settings.counts) is UsageScope.CONVERSATION:
            self._earlier = UsageCounts(earlier.input, earlier.cached, earlier.output)

    def read_update(self, turn: RunningTurn | None, update: dict[str, Any]) -> bool:
        """Take over what an update of the session reports. Return whether the context's usage has changed."""
        if turn is not None and self._settings.source == IN_UPDATES:
            turn.used = add_counts(turn.used, self._counts(update))
        cost = reported_figures.value_at(update, self._settings.cost) if self._settings.cost else None
        if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
            self._cost = float(cost)
            if not self._has_begun and turn is None:
                # A loaded conversation reports the price of its earlier sessions.
                self._earlier_cost = self._cost
        used, size = update.get("used"), update.get("size")
        if not isinstance(used, int) or not isinstance(size, int) or size <= 0 or used < 0:
            return False
        before, self.context = self.context, min(1.0, used / size)
        return self.context != before

    def end_turn(self, turn: RunningTurn, answer: Any) -> UsageCounts:
        """Return what the turn used; ``answer`` is the program's answer to the prompt."""
        self._has_begun = True
        reported = turn.used
        if self._settings.source == IN_ANSWER and isinstance(answer, dict):
            total = self._counts(answer)
            reported = share_of_turn(total, self._earlier, UsageScope(self._settings.counts))
            self._earlier = total if not total.is_empty else self._earlier
        if self._cost is not None:
            cost = self._cost - self._earlier_cost if self._cost >= self._earlier_cost else self._cost
            self._earlier_cost = self._cost
            reported = UsageCounts(reported.input, reported.cached, reported.output, cost)
        return reported

    def _counts(self, event: dict[str, Any]) -> UsageCounts:
        used = reported_figures.usage_of_object(self._form, event)
        return UsageCounts() if used is None else UsageCounts(used.input, used.cached, used.output)


POLL_SECONDS = 1.0
"""Longest time until a new message is noticed if the system has no inotify."""
EVIDENCE = "acp prompt"
AGAIN = "[liza] You may have got this already: the turn was interrupted before you answered."


class InboxNews(Value):
    """Event: the inbox may have changed."""


class PromptQueue:
    """Takes messages for one run, and acknowledges them when the program has shown that it read them."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._taken: frozenset[str] = frozenset()
        self._doubted: frozenset[str] = frozenset()

    def watch(self, events: SimpleQueue[Any]) -> None:
        """Put an event into ``events`` whenever the inbox changes, from a thread."""
        inbox.list_pending(self._run_dir.paths, self._run_dir.agent)
        directory = self._run_dir.path.parent / "inbox"
        directory.mkdir(mode=0o700, exist_ok=True)

        def wait() -> None:
            with file_growth.watch_growth(directory, file_growth.NEWS) as wait_for_news:
                while True:
                    wait_for_news(POLL_SECONDS)
                    events.put(InboxNews())

        threading.Thread(target=wait, name="inbox", daemon=True).start()

    def next_messages(self) -> tuple[Message, ...]:
        """Return the messages of the next prompt: all urgent ones, or the first. Raises OSError.

        Urgent ones go together, so that none of them interrupts the turn of another one before that was read.
        """
        waiting = self._waiting()
        urgent = tuple(message for message in waiting if message.priority == PromptPriority.URGENT)
        return urgent or tuple(waiting[:1])

    def _waiting(self) -> list[Message]:
        pending = inbox.list_pending(self._run_dir.paths, self._run_dir.agent)
        return [message for message in pending if message.id not in self._taken]

    def take(self, messages: tuple[Message, ...], now: datetime) -> str:
        """Record that the messages are sent to the program, and return the prompt. Raises OSError, LizaError."""
        paths, agent, run = self._run_dir.paths, self._run_dir.agent, self._run_dir.run
        counted = tuple(replace(message, attempts=message.attempts + 1, tried=now, run=run) for message in messages)
        for message in counted:
            inbox.update_message(paths, agent, message)
        inbox.log_events(paths, agent, counted, DeliveryEvent.ATTEMPTED, MessageChannel.ACP, now)
        crash_points.point("acp", "taken")
        self._taken |= {message.id for message in messages}
        return "\n".join(map(self._format, messages))

    def _format(self, message: Message) -> str:
        text = message.text if message.sender == LIZA else inbox.format_messages((message,))
        return f"{AGAIN}\n{text}" if message.id in self._doubted else text

    def take_quoted(self, prompt: str) -> tuple[str, ...]:
        """Take the messages whose whole text is in the first prompt, and return their ids: the brief quotes those that
        waited, and has the notes of the board, of which `liza note --now` makes messages as well."""
        lines = _squeeze_lines(prompt)
        quoted = tuple(
            message.id
            for message in self._waiting()
            if _contains(lines, inbox.format_messages((message,))) or _contains(lines, _format_note(message))
        )
        self._taken |= set(quoted)
        return quoted

    def give_back(self, messages: tuple[str, ...]) -> None:
        """Let these messages be sent again: their turn was interrupted before the program showed that it read them."""
        self._taken -= set(messages)
        self._doubted |= set(messages)

    def acknowledge(self, messages: tuple[str, ...], now: datetime) -> None:
        """Acknowledge messages: the program works on them. Raises OSError, LizaError."""
        if messages:
            paths, agent, run = self._run_dir.paths, self._run_dir.agent, self._run_dir.run
            inbox.acknowledge(paths, agent, messages, run, EVIDENCE, now, MessageChannel.ACP)
            crash_points.point("acp", "acknowledged")


def _format_note(message: Message) -> str:
    return f"{NOTE_PREFIX}{quote_lines(message.text, inbox.MAX_MESSAGE_BYTES)}"


def _squeeze_lines(text: str) -> list[str]:
    """Return the lines that have text, without blanks; one blank remains before those that continue a quotation."""
    lines = ((" " if line.startswith("  ") else "") + "".join(line.split()) for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def _contains(lines: list[str], quotation: str) -> bool:
    """Return whether the lines hold the whole quotation, and it does not go on after it."""
    wanted = _squeeze_lines(quotation)
    ends = (start + len(wanted) for start, line in enumerate(lines) if line == wanted[0])
    return any(
        lines[end - len(wanted) : end] == wanted and not (end < len(lines) and lines[end].startswith(" "))
        for end in ends
    )


MAX_TEXT = 4000
"""Characters after which a streamed text is written, also without a line end."""
MAX_OUTPUT = 20_000
"""Maximum length of a tool's result in a line, in characters."""
STDOUT = 1


class OutputLines:
    """Writes lines. Streamed text is joined, because programs send it in pieces of a few characters."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._pending = ""
        self._pending_type = "text"

    @property
    def has_text(self) -> bool:
        """Whether text waits to be written."""
        return bool(self._pending)

    def write(self, kind: str, /, **fields: Any) -> None:
        """Write a line of this type, after the text before it. Raises OSError."""
        self.flush()
        self._put({"type": kind, **fields})

    def add_text(self, text: str, kind: str = "text") -> None:
        """Add streamed text; it is written at the end of a line, or when it is long. Raises OSError."""
        if kind != self._pending_type:
            self.flush()
        self._pending_type = kind
        self._pending += text
        head, newline, rest = self._pending.rpartition("\n")
        if newline and head.strip():
            self._put({"type": kind, "text": head})
            self._pending = rest
        if len(self._pending) > MAX_TEXT:
            self.flush()

    def flush(self) -> None:
        """Write the text that was added. Raises OSError."""
        text, self._pending = self._pending, ""
        if text.strip():
            self._put({"type": self._pending_type, "text": text})

    def _put(self, fields: dict[str, Any]) -> None:
        data = memoryview(msgspec.json.encode(fields) + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]


def shorten_output(value: Any) -> str:
    """Return the result of a tool as text, its end cut off if it is long."""
    texts = [part["content"]["text"] for part in value if _is_text(part)] if isinstance(value, list) else []
    if value is not None and not isinstance(value, str):
        value = "\n".join(texts) if texts else msgspec.json.encode(value).decode()
    text = value or ""
    return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}…"


def _is_text(part: object) -> bool:
    content = part.get("content") if isinstance(part, dict) else None
    return isinstance(content, dict) and isinstance(content.get("text"), str)


class WorkerSurfaces(Value):
    """The surfaces of one run. Each function may raise LizaError or OSError."""

    report_lifecycle: Callable[[LifecycleRequest], LifecycleAnswer]
    authorize: Callable[[AuthorizeRequest], AuthorizeAnswer]
    record_telemetry: Callable[[TelemetryRequest], TelemetryAnswer]


def connect_surfaces(run_dir: RunDir, directory: str) -> WorkerSurfaces:
    """Return the surfaces of a run whose tools start in ``directory``."""
    log, guards = TelemetryLog(run_dir.path), GuardsCache()
    return WorkerSurfaces(
        report_lifecycle=lambda request: report_lifecycle(run_dir, request, datetime.now(UTC), TurnSource.ACP),
        authorize=lambda request: judge_request(run_dir, request, os.environ, directory, guards),
        record_telemetry=lambda request: record_telemetry(run_dir, request, datetime.now(UTC), log),
    )


class SurfaceCalls:
    """Reports of one run. ``session_id`` is the program's id of the conversation, once it is known."""

    def __init__(self, run: str, worker: WorkerSurfaces, lines: OutputLines) -> None:
        self.worker = worker
        self.session_id: str | None = None
        self._run, self._lines = run, lines

    def report(self, event: LifecycleEvent, metadata: Mapping[str, Any] | None = None) -> None:
        """Report a transition."""
        request = LifecycleRequest(
            event=event,
            run_id=self._run,
            timestamp=datetime.now(UTC),
            session_id=self.session_id,
            metadata=dict(metadata or {}),
        )
        self._try(lambda: self.worker.report_lifecycle(request))

    def record_turn(self, number: int, calls: Sequence[ReportedCall], used: UsageCounts, context: float | None) -> None:
        """Report a complete turn with its usage and its tool calls."""
        usage = TurnUsage(
            input_tokens=max(0, used.input - used.cached),
            output_tokens=used.output,
            cache_read_tokens=used.cached,
            cost_usd=used.cost,
        )
        event = TelemetryEvent(
            timestamp=datetime.now(UTC),
            usage=usage,
            tools_called=tuple(calls),
            id=f"{self.session_id}/{number}",
            context_usage=context,
        )
        self._try(lambda: self.worker.record_telemetry(TelemetryRequest(run_id=self._run, events=(event,))))

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a report that fails must not end the agent's work
            self._lines.write("notice", text=f"not reported: {error or type(error).__name__}")
