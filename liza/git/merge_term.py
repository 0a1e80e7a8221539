"""The term of a merger: the number that the board gave its host, and the commit of it that the remote has."""

from __future__ import annotations

from typing import Protocol

from liza.model.value_classes import Mutable


class MergeTerm(Protocol):
    """The duty to merge, as the board has it: one host has it at a time, and each holder has a greater number."""

    @property
    def host(self) -> str: ...

    @property
    def number(self) -> int: ...

    def is_held(self) -> bool:
        """Return whether this host still has the duty."""
        ...

    def raised_above(self, number: int) -> MergeTerm | None:
        """Return the term of this host with a number above ``number``; None if another host has the duty."""
        ...


class HeldTerm(Mutable):
    """A term that the remote knows. ``commit``: what this merger saw or wrote at ``refs/liza/merge-term``. A push with
    another commit as the expected one is refused, so it is never read again while this merger works."""

    term: MergeTerm
    commit: str
