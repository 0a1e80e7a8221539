"""The next step of a session over ACP: prompt, interrupt, end, or wait.

One prompt at a time: a second one in a running turn cancels the first, is queued, is merged with it or fails, depending
on the program. The end of a turn means that the program is idle, never that the work is done.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value

CANCEL_LIMIT = 15.0
"""Seconds within which a program has to end a cancelled turn; the slowest took 0.5 s."""
DENIALS_BEFORE_INTERRUPT = 2
"""Refused tool calls in a turn after which it is interrupted: the protocol has no field that tells the model why, so
it would try again without the reason."""


class TurnFacts(Value):
    """The running turn. ``silent``: seconds since the last update of the program; ``cancelled``: since session/cancel,
    None if it was not sent. ``denials``: refused tool calls in this turn."""

    silent: float = 0.0
    has_open_tool: bool = False
    cancelled: float | None = None
    denials: int = 0


class AcpFacts(Value):
    """What the next step depends on. ``turn``: None between two turns.

    ``waiting``: whether a prompt waits, ``is_urgent``: and it interrupts a turn. ``refusals``: reasons that the model
    was not told yet. ``is_unread``: a prompt that no message holds was interrupted before it was answered.
    ``is_closed``: the run has called its closing command, or was stopped on purpose.
    """

    turn: TurnFacts | None = None
    waiting: bool = False
    is_urgent: bool = False
    refusals: int = 0
    is_unread: bool = False
    is_closed: bool = False
    silence_limit: float = 300.0


class SendPrompt(Value):
    """Send the prompt that waits first."""


class TellRefusals(Value):
    """Prompt the model with the reasons for which its tools were refused."""


class RepeatPrompt(Value):
    """Give the prompt again that was interrupted before it was answered."""


class InterruptTurn(Value):
    """Cancel the running turn; what waits follows as a prompt."""


class EndSession(Value):
    """End the program: its work is closed."""


class FailSession(Value):
    """End the program, and report why its model gives no answer."""

    kind: SilenceKind
    message: str


class AwaitNews(Value):
    """Wait for the next event, at most ``seconds``; None: without a limit."""

    seconds: float | None = None


SessionStep = SendPrompt | TellRefusals | RepeatPrompt | InterruptTurn | EndSession | FailSession | AwaitNews


def next_session_step(facts: AcpFacts) -> SessionStep:
    """Return the next step."""
    if facts.turn is not None:
        return _step_in_turn(facts, facts.turn)
    if facts.is_closed:
        return EndSession()
    if facts.refusals:
        return TellRefusals()
    if facts.waiting:
        return SendPrompt()
    return RepeatPrompt() if facts.is_unread else AwaitNews()


def _step_in_turn(facts: AcpFacts, turn: TurnFacts) -> SessionStep:
    if turn.cancelled is not None:
        left = CANCEL_LIMIT - turn.cancelled
        unanswered = f"it did not end a cancelled turn within {CANCEL_LIMIT:.0f} s"
        return FailSession(SilenceKind.BROKEN, unanswered) if left <= 0 else AwaitNews(left)
    if facts.is_urgent and facts.waiting and not facts.is_closed:
        return InterruptTurn()
    if turn.denials >= DENIALS_BEFORE_INTERRUPT and not facts.is_closed:
        return InterruptTurn()
    if turn.has_open_tool:
        # A tool may run for a long time in silence; the supervisor watches the session's activity.
        return AwaitNews()
    left = facts.silence_limit - turn.silent
    if left > 0:
        return AwaitNews(left)
    return FailSession(SilenceKind.BROKEN, f"no update of a running turn for {turn.silent:.0f} s")


TOOL_WORDS = {
    "execute": "shell",
    "edit": "write",
    "delete": "write",
    "move": "write",
    "read": "read",
    "search": "read",
    "fetch": "fetch",
}
"""Word of Liza's vocabulary for each kind of tool of the protocol."""
OTHER_TOOL = "other"
MAX_CALLS = 512
"""Maximum number of calls that are remembered, to limit memory."""


class CallStatus(StrEnum):
    """Statuses in which a call is over."""

    COMPLETED = "completed"
    FAILED = "failed"


class ToolRequest(Value):
    """A tool call: ``tool`` in Liza's vocabulary, ``input`` with the keys ``command`` and ``path`` where known."""

    id: str
    tool: str
    title: str
    input: dict[str, Any]


class ToolPaths(Value):
    """Where a program's tool call holds the command of a shell call, and the file of any other: first match counts."""

    command: tuple[str, ...] = ("rawInput.command",)
    file: tuple[str, ...] = ("rawInput.file_path", "rawInput.path", "locations.*.path", "content.*.path")


class ToolBook:
    """The tool calls of a turn, by id."""

    def __init__(self, paths: ToolPaths) -> None:
        self._paths = paths
        self._calls: dict[str, dict[str, Any]] = {}

    def add(self, call: Mapping[str, Any]) -> str:
        """Merge an update or a request into its call, and return the call's id. Absent fields stay."""
        name = str(call.get("toolCallId") or "")
        merged = self._calls.setdefault(name, {})
        merged.update({key: value for key, value in call.items() if value not in (None, "", [], {})})
        if len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        return name

    def describe(self, name: str) -> ToolRequest:
        """Return the call as it is known so far."""
        call = self._calls.get(name, {})
        title = str(call.get("title") or "")
        tool = TOOL_WORDS.get(str(call.get("kind")), OTHER_TOOL)
        arguments = call.get("rawInput")
        values = dict(arguments) if isinstance(arguments, Mapping) else {}
        command = _first_text(call, self._paths.command)
        if command is not None and (tool == TOOL_WORDS["execute"] or "command" in values):
            tool = TOOL_WORDS["execute"]
            values["command"] = command
        path = _first_text(call, self._paths.file)
        if path is not None and tool != TOOL_WORDS["execute"]:
            values["path"] = path
        return ToolRequest(name, tool, title, values)

    def status(self, name: str) -> str:
        """Return the status that the program reported last."""
        return str(self._calls.get(name, {}).get("status") or "")

    def output(self, name: str) -> Any:
        """Return the result of the call as the program reported it."""
        call = self._calls.get(name, {})
        return call.get("rawOutput") if call.get("rawOutput") is not None else call.get("content")

    def close(self, name: str) -> None:
        """Forget a call that is over."""
        self._calls.pop(name, None)

    def has_open_call(self) -> bool:
        """Return whether a call is under way: then the model is not asked, and silence means nothing."""
        return any(self._calls)


def _first_text(call: Mapping[str, Any], paths: Sequence[str]) -> str | None:
    for path in paths:
        for value in _values_at(call, path.split(".")):
            if isinstance(value, str) and value:
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return _join_command(value)
    return None


def _values_at(value: Any, names: Sequence[str]) -> Iterable[Any]:
    if not names:
        yield value
    elif names[0] == "*" and isinstance(value, list):
        for item in value:
            yield from _values_at(item, names[1:])
    elif isinstance(value, Mapping) and names[0] in value:
        yield from _values_at(value[names[0]], names[1:])


def _join_command(words: Sequence[str]) -> str:
    """Return the words of a command as one line; of ``bash -lc TEXT`` only the text."""
    if len(words) == 3 and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


class OptionKind(StrEnum):
    """Kinds of options that are chosen. Options for "always" are never chosen: some programs store them on disk."""

    ALLOW_ONCE = "allow_once"
    REJECT_ONCE = "reject_once"


def choose_option(options: Sequence[Any], *, allowed: bool) -> str | None:
    """Return the id of the first option of the right kind.

    None: there is no such option, and the request is to be answered with ``cancelled``, which blocks the tool.
    """
    wanted = OptionKind.ALLOW_ONCE if allowed else OptionKind.REJECT_ONCE
    for option in options:
        if isinstance(option, Mapping) and option.get("kind") == wanted and isinstance(option.get("optionId"), str):
            return str(option["optionId"])
    return None


def compose_outcome(option: str | None) -> dict[str, Any]:
    """Return the result of a permission request: the chosen option, or ``cancelled``."""
    outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
    return {"outcome": outcome}


AUTHENTICATION_REQUIRED = -32000
"""Error code of the protocol: the program is not logged in."""
MAX_MESSAGE = 400
_NO_MODEL = (
    r"model[_ ]not[_ ]found|(?:unknown|invalid|no such) model"
    r"|\bmodels?\b.{0,80}(?:does not exist|not found|not supported)"
)
_KINDS = (
    (SilenceKind.MODEL, re.compile(_NO_MODEL, re.IGNORECASE)),
    (SilenceKind.QUOTA, re.compile(r"\b429\b|rate.?limit|quota|usage limit|too many requests", re.IGNORECASE)),
    (
        SilenceKind.LOGIN,
        re.compile(r"\b40[13]\b|authenticat|unauthori[sz]ed|api[ _]?key|log ?in\b|credential", re.IGNORECASE),
    ),
    (SilenceKind.SERVER, re.compile(r"\b5\d\d\b|overloaded|server error|high demand|unavailable", re.IGNORECASE)),
)


class StopReasonText(StrEnum):
    """Stop reasons of a turn that are treated specially. Any other one, also an unknown one, is a normal end."""

    CANCELLED = "cancelled"
    END_TURN = "end_turn"


class TurnEnd(StrEnum):
    """How a turn ended."""

    OVER = "over"
    CANCELLED = "cancelled"
    FAILED = "failed"


class FailureSign(Value):
    """An expression for the last text of a turn, or for the text of its error, that means a failure of ``kind``."""

    kind: str
    match: str


class TurnFailure(Value):
    """Why the model gave no usable answer."""

    kind: SilenceKind
    message: str


class TurnResult(Value):
    """The end of a turn, the program's stop reason, and the failure if it failed."""

    end: TurnEnd
    stop_reason: str = ""
    failure: TurnFailure | None = None


class TurnContent(Value):
    """What a turn has shown: the text after its last tool call, and whether there was any text or tool call."""

    last_text: str = ""
    is_empty: bool = True
    is_cancelled: bool = False
    """Whether the client cancelled it."""


def judge_answer(stop_reason: str, content: TurnContent, signs: Sequence[FailureSign]) -> TurnResult:
    """Judge a turn that the program ended with a stop reason."""
    if content.is_cancelled or stop_reason == StopReasonText.CANCELLED:
        return TurnResult(TurnEnd.CANCELLED, stop_reason)
    failure = find_failure_sign(content.last_text, signs)
    if failure is None and content.is_empty and stop_reason == StopReasonText.END_TURN:
        failure = TurnFailure(SilenceKind.BROKEN, "the turn ended without an answer")
    return TurnResult(TurnEnd.OVER if failure is None else TurnEnd.FAILED, stop_reason, failure)


def judge_error(error: Any, content: TurnContent, signs: Sequence[FailureSign]) -> TurnResult:
    """Judge a turn that ended with an error: after a cancellation some programs report it as an error."""
    if content.is_cancelled:
        return TurnResult(TurnEnd.CANCELLED)
    return TurnResult(TurnEnd.FAILED, failure=classify_error(error, signs))


def classify_error(error: Any, signs: Sequence[FailureSign] = ()) -> TurnFailure:
    """Return the failure that an error of the program means."""
    fields = error if isinstance(error, Mapping) else {}
    text = _error_text(error, fields)
    failure = find_failure_sign(text, signs)
    if failure is not None:
        return failure
    if fields.get("code") == AUTHENTICATION_REQUIRED:
        # Its data are the ways to log in, in a form for a client with a screen.
        return TurnFailure(SilenceKind.LOGIN, " ".join(str(fields.get("message")).split())[:MAX_MESSAGE])
    message = " ".join(text.split())[:MAX_MESSAGE]
    code = fields.get("code")
    searched = f"{code} {text}" if isinstance(code, int) and code > 0 else text
    kind = next((kind for kind, pattern in _KINDS if pattern.search(searched)), SilenceKind.BROKEN)
    return TurnFailure(kind, message)


def find_failure_sign(text: str, signs: Sequence[FailureSign]) -> TurnFailure | None:
    """Return the failure of the last sign that matches, or None."""
    for sign in reversed(signs):
        match = re.search(sign.match, text, re.MULTILINE)
        if match is not None:
            words = match.groupdict().get("words") or text[match.start() :]
            return TurnFailure(SilenceKind(sign.kind), " ".join(words.split())[:MAX_MESSAGE])
    return None


def _error_text(error: Any, fields: Mapping[str, Any]) -> str:
    """Return the message of an error with its details; some programs put the reason only into these."""
    message = str(fields.get("message") or error)
    details = fields.get("data")
    if details in (None, "", {}):
        return message
    if isinstance(details, Mapping) and isinstance(details.get("details"), str):
        return f"{message}: {details['details']}"
    return f"{message}: {details if isinstance(details, str) else json.dumps(details, default=str)}"


class UsageScope(StrEnum):
    """What a reported figure counts."""

    TURN = "turn"
    SESSION = "session"
    """All turns since the program has begun or loaded the conversation: the turn's share is the difference."""
    CONVERSATION = "conversation"
    """All turns of the conversation, those of earlier sessions included."""
    REQUEST = "request"
    """One request: all that are reported in a turn are added up."""


class UsageCounts(Value):
    """Tokens and cost in US dollars. ``cached`` is part of ``input``. ``cost`` None: not reported."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is counted."""
        return not (self.input or self.output or self.cost)


def add_counts(first: UsageCounts, second: UsageCounts) -> UsageCounts:
    """Return the sum."""
    costs = [cost for cost in (first.cost, second.cost) if cost is not None]
    return UsageCounts(
        first.input + second.input,
        first.cached + second.cached,
        first.output + second.output,
        sum(costs) if costs else None,
    )


def share_of_turn(reported: UsageCounts, earlier: UsageCounts, scope: UsageScope) -> UsageCounts:
    """Return what a turn used. ``earlier`` is the figure at the end of the turn before.

    A figure below the earlier one belongs to a new count: the program started counting again.
    """
    if scope not in (UsageScope.SESSION, UsageScope.CONVERSATION):
        return reported
    if reported.input < earlier.input or reported.output < earlier.output:
        return reported
    return UsageCounts(
        reported.input - earlier.input,
        max(0, reported.cached - earlier.cached),
        reported.output - earlier.output,
        None if reported.cost is None else max(0.0, reported.cost - (earlier.cost or 0.0)),
    )
