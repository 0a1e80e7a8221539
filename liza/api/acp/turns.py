"""What the sidecar remembers of a running turn."""

from __future__ import annotations

import time
from typing import Any

from liza.api.acp.reports import OutputLines, WorkerSurfaces, shorten_output
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
from liza.guards.session_guards import AuthorizeAnswer, AuthorizeRequest
from liza.model.spending import TokenUsage
from liza.model.value_classes import Mutable, Value, field
from liza.programs import reported_figures
from liza.programs.presets.preset import AcpUsage, UsageFormat
from liza.usage.rules.telemetry_rules import ReportedCall

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
