"""Changes to the repository made outside of Liza. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from liza.model.value_classes import Value


class RepositoryDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to the repository made outside of Liza.

    ``moved``: how another process moved integration. ``lost``: merged tasks that it does not contain any more.
    ``ways``: commands to continue.
    """

    moved: str | None = None
    lost: tuple[str, ...] = ()
    ways: str = ""


class IntegrationDrift(Value):
    """A move of integration outside of Liza, from ``last_tip`` to ``tip``.

    ``removed`` are the commits that it does not contain any more, ``added`` the new ones, newest first, each with a
    line about it. ``lost_tasks`` are the merged tasks that are gone. ``has_merged_since`` says whether Liza has merged
    onto it since.
    """

    branch: str
    last_tip: str
    tip: str
    removed: dict[str, str]
    added: dict[str, str]
    lost_tasks: tuple[str, ...]
    has_merged_since: bool
    remote: str = ""
    """The remote that has the branch, for a crew on several hosts."""

    @property
    def summary(self) -> str:
        """A phrase: from which commit to which, and what that means for merged work."""
        is_one_way = bool(self.removed) != (bool(self.added) or self.has_merged_since)
        direction = "" if not is_one_way else "back " if self.removed else "on "
        effects = []
        if self.lost_tasks:
            tasks = _join_first(self.lost_tasks, 5, ", ")
            effects.append(f"{_format_count(len(self.lost_tasks), 'merged task')} not in it any more: {tasks}")
        elif self.removed:
            commits = _join_first([*self.removed.values()])
            effects.append(f"{_format_count(len(self.removed), 'commit')} not in it any more: {commits}")
        if self.added:
            commits = _join_first([*self.added.values()])
            effects.append(f"{_format_count(len(self.added), 'commit')} new, without a verdict: {commits}")
        return f"from {self.last_tip[:10]} {direction}to {self.tip[:10]}: {'. '.join(effects) or 'no commit is lost'}"

    @property
    def message(self) -> str:
        """A sentence for people."""
        where = f" of {self.remote}" if self.remote else ""
        return f"{self.branch}{where} was moved outside of liza, {self.summary}"


def _format_count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"


def _join_first(lines: Sequence[str], most: int = 3, between: str = "; ") -> str:
    return between.join(lines[:most]) + (f" and {len(lines) - most} more" if len(lines) > most else "")
