"""Choose an answer to a permission request by the kind of its options: their ids and names differ between programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


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
