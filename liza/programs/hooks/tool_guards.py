"""What a run's program may not do any more: asked before each of its tools. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """A tool that is about to run. ``word`` is the run's closing word, ``stopped`` why somebody ended its session."""

    run: str
    tool: str
    word: str | None = None
    stopped: str | None = None


@dataclass(frozen=True)
class Refusal:
    """The tool does not run, and the model is told ``why``."""

    why: str


def judge(use: Use) -> Refusal | None:
    """None lets the tool run."""
    if use.stopped is not None:
        return Refusal(f"[liza] {use.run} was stopped ({use.stopped}). Use no more tools, and end here.")
    if use.word is not None:
        return Refusal(f"[liza] {use.run} has said its last word; it is over. Use no more tools, and end here.")
    return None
