"""Which sections of a context a session gets, and what happens as its context window fills up. Pure."""

from __future__ import annotations

from enum import StrEnum

from liza.model.value_classes import Value


class ContextMode(StrEnum):
    """``full``: for a new conversation; ``compact``: after the program compacted its context; ``resume``: for a
    conversation that goes on."""

    FULL = "full"
    COMPACT = "compact"
    RESUME = "resume"


class SectionType(StrEnum):
    """The sections of a context: who the agent is, its work, notes and messages, what earlier sessions left, and what
    to obey."""

    ROLE = "role"
    WORK = "work"
    MAIL = "mail"
    CHECKPOINT = "checkpoint"
    DIRECTIVE = "directive"


SECTIONS_OF_MODE = {
    ContextMode.FULL: frozenset(SectionType),
    # Its summary has what it read of notes and messages, and new ones arrive as prompts.
    ContextMode.COMPACT: frozenset(SectionType) - {SectionType.MAIL},
    # The conversation has the task.
    ContextMode.RESUME: frozenset(SectionType) - {SectionType.WORK},
}


END_AT = 0.95
"""Used part of the context window above which a session is ended: its model forgets the beginning of its work, or
fails. A higher ``config.context_handoff`` is also the limit of the end."""


class ContextStep(StrEnum):
    """What the use of a session's context window calls for."""

    NONE = "none"
    ASK_HANDOFF = "ask handoff"
    END = "end"


def next_context_step(usage: float | None, handoff_at: float, *, asked: bool) -> ContextStep:
    """Return what to do at this ``usage``, 0 to 1. ``asked``: the session was asked to hand off."""
    if usage is None or usage <= handoff_at:
        return ContextStep.NONE
    if usage > END_AT:
        return ContextStep.END
    return ContextStep.NONE if asked else ContextStep.ASK_HANDOFF


class TextSection(Value):
    """One section of a brief or a context, as lines of Markdown."""

    type: SectionType
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def select_sections(sections: tuple[TextSection, ...], mode: ContextMode) -> tuple[TextSection, ...]:
    """Return the sections of ``mode`` in their order, without empty ones."""
    return tuple(section for section in sections if section.type in SECTIONS_OF_MODE[mode] and section.lines)
