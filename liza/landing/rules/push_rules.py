"""Decide whether a branch of a remote may be replaced, and what a failed push means."""

from __future__ import annotations

import re
from enum import StrEnum

from liza.model.value_classes import Value


class PushStep(StrEnum):
    """What is done with the branch of the remote."""

    NOTHING = "nothing"
    PUSH = "push"
    REFUSE = "refuse"


class PushFacts(Value):
    """``tip``: the commit to push. ``remote_tip``: the branch of the remote; None if it does not exist.

    ``last_pushed``: the commit that this crew pushed last. ``is_contained``: whether ``tip`` contains ``remote_tip``.
    """

    tip: str
    remote_tip: str | None
    last_pushed: str | None
    is_contained: bool


def decide_push(facts: PushFacts) -> PushStep:
    """Return whether to push. A commit that another person pushed is never overwritten."""
    if facts.remote_tip == facts.tip:
        return PushStep.NOTHING
    if facts.remote_tip is None or facts.is_contained or facts.remote_tip == facts.last_pushed:
        return PushStep.PUSH
    return PushStep.REFUSE


class PushFailure(StrEnum):
    """Why a remote did not answer or did not take a push."""

    LOGIN = "it asks for a login"
    MOVED = "the branch moved meanwhile"
    REJECTED = "it rejected the push"
    UNREACHABLE = "it cannot be reached"


_LOGIN = re.compile(
    r"(?i)could not read (username|password)|authentication failed|permission denied|terminal prompts disabled"
    r"|invalid (username|credentials)|host key verification failed|access denied|\b40[13]\b"
)
_MOVED = re.compile(r"\((stale info|fetch first|non-fast-forward)\)")
_REJECTED = re.compile(r"\[remote rejected\]|pre-receive hook declined|remote: error|\[rejected\]")


def parse_ref_results(output: str) -> dict[str, str | None]:
    """Return the result for each ref from what ``git push --porcelain`` prints: None, or why it was not updated."""
    rows = (line.split("\t") for line in output.splitlines())
    return {row[1].partition(":")[2]: row[2] if row[0] == "!" else None for row in rows if len(row) == 3}


def classify_failure(output: str) -> PushFailure:
    """Return the cause of a failed ``git push`` or ``git ls-remote`` from what it printed."""
    if _MOVED.search(output):
        return PushFailure.MOVED
    if _REJECTED.search(output):
        return PushFailure.REJECTED
    return PushFailure.LOGIN if _LOGIN.search(output) else PushFailure.UNREACHABLE
