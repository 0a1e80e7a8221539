"""Kinds of work that an agent holds. Pure."""

from __future__ import annotations

from enum import StrEnum


class WorkKind(StrEnum):
    """Kind of an agent's work, as ``CurrentWork``, the record of a run and the ledger name it."""

    WORK = "work"
    """The claim of a task by a coder."""
    REVIEW = "review"
    PLANNING = "planning"
