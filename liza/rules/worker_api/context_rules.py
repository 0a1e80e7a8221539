"""Which sections of a context a session gets, and what happens as its context window fills up. Pure."""

from __future__ import annotations

from enum import StrEnum

from liza.rules.value_classes import Value


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
