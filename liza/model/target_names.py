"""Targets of notices: which are allowed, and how they are named without their credentials. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

DESKTOP: Final = "desktop"
EXEC_LABEL: Final = "exec"
CUT_COMMAND: Final = "[cut: liza config get notify]"
"""Shown instead of a command, which may contain a credential. It names the command that prints it."""
VARIABLE_PREFIX, FILE_PREFIX = "env:", "file:"


def is_url(target: str) -> bool:
    """Return whether a target is an address itself, and not the name of one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", target) is not None


def target_problem(target: str) -> str | None:
    """Return why ``target`` is no target; None if it is one. The text has no part of an address."""
    if target == DESKTOP or is_url(target):
        return None
    if target.startswith(VARIABLE_PREFIX):
        valid = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", target.removeprefix(VARIABLE_PREFIX), re.ASCII)
        return None if valid else "env: needs the name of an environment variable"
    if target.startswith(FILE_PREFIX):
        # A relative path would be below the checkout, where agents' commits arrive.
        path = target.removeprefix(FILE_PREFIX)
        return None if path.startswith(("/", "~/")) and "\0" not in path else "file: needs an absolute path"
    return "not desktop, env:NAME, file:PATH or a URL"


def board_problems(targets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the label of each target that the board must not have, and why."""
    for target in targets:
        problem = target_problem(target)
        if problem is None and is_url(target):
            problem = "a URL, which the history of the board would keep"
        if problem is not None:
            yield target_label(target), problem


def target_label(target: str) -> str:
    """Return a target as it may be shown: of an address only the scheme, of an unknown form nothing."""
    if is_url(target):
        return f"{target.partition('://')[0]}://…"
    return target if target_problem(target) is None else "…"


def hide_credentials(settings: Any) -> Any:
    """Return ``config.notify`` as JSON values with labels instead of targets, and without its command."""
    if not isinstance(settings, Mapping):
        return settings
    shown = dict(settings)
    if isinstance(settings.get("targets"), list | tuple):
        shown["targets"] = [target_label(str(target)) for target in settings["targets"]]
    if settings.get("exec"):
        shown["exec"] = CUT_COMMAND
    return shown
