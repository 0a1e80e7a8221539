"""How a turn ended. A normal end is no success: some programs end a turn normally after a refused login, a usage limit
or an error of the server, and tell it only in their text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value

AUTHENTICATION_REQUIRED = -32000
"""Error code of the protocol: the program is not logged in."""
MAX_MESSAGE = 400
_KINDS = (
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
