"""What must hold of a board at rest. Filled in below by the table of invariants."""

from __future__ import annotations

from typing import Any

from liza.rules.model import State, Violation


def of_entry(section: str, key: str, entry: Any, state: State) -> tuple[Violation, ...]:
    """The invariants of one entry alone, given the config of ``state``."""
    return ()


def across(state: State) -> tuple[Violation, ...]:
    """The invariants between tasks: unknown dependencies, cycles, dead ends, two tasks in one slot."""
    return ()


def check(state: State) -> tuple[Violation, ...]:
    """Every violation on the board."""
    return ()
