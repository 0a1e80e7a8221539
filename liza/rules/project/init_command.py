"""The `liza init` commands in hints, completed with what the person typed. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from liza.rules.lazy_pattern import lazy_pattern

_COMMAND = lazy_pattern(r'liza init (?:"…"|…)(?P<words>[^;]*)')


def complete_init_commands(hint: str, goal: str | None, options: Sequence[tuple[str, ...]]) -> str:
    """Return the hint with the goal and the options in each `liza init "…"`.

    Options that the hint itself names are left out. Without a goal and a ``--spec``, the place of the goal stays.
    """
    subject = [shlex.quote(goal)] if goal else [] if any(option[0] == "--spec" for option in options) else ['"…"']

    def complete(match: re.Match[str]) -> str:
        named = set(match["words"].split())
        typed = [shlex.join(option) for option in options if option[0] not in named]
        return " ".join(["liza init", *subject, *typed]) + match["words"]

    return _COMMAND.sub(complete, hint)
