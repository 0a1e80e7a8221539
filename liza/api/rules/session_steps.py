"""The next step of a session over ACP: prompt, interrupt, end, or wait.

One prompt at a time: a second one in a running turn cancels the first, is queued, is merged with it or fails, depending
on the program. The end of a turn means that the program is idle, never that the work is done.
"""

from __future__ import annotations

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
