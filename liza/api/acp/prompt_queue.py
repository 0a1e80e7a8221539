"""The prompts that wait for this run: the messages of the agent's inbox, one at a time, urgent ones together."""

from __future__ import annotations

import threading
from datetime import datetime
from queue import SimpleQueue
from typing import Any

from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA, DeliveryEvent, Message, MessageChannel, PromptPriority
from liza.model.value_classes import Value, replace
from liza.programs.session.run_directory import RunDir
from liza.system import crash_points, file_growth
from liza.text.quoting import NOTE_PREFIX, quote_lines

POLL_SECONDS = 1.0
"""Longest time until a new message is noticed if the system has no inotify."""
EVIDENCE = "acp prompt"
AGAIN = "[liza] You may have got this already: the turn was interrupted before you answered."


class InboxNews(Value):
    """Event: the inbox may have changed."""


class PromptQueue:
    """Takes messages for one run, and acknowledges them when the program has shown that it read them."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._taken: frozenset[str] = frozenset()
        self._doubted: frozenset[str] = frozenset()

    def watch(self, events: SimpleQueue[Any]) -> None:
        """Put an event into ``events`` whenever the inbox changes, from a thread."""
        inbox.list_pending(self._run_dir.paths, self._run_dir.agent)
        directory = self._run_dir.path.parent / "inbox"
        directory.mkdir(mode=0o700, exist_ok=True)

        def wait() -> None:
            with file_growth.watch_growth(directory, file_growth.NEWS) as wait_for_news:
                while True:
                    wait_for_news(POLL_SECONDS)
                    events.put(InboxNews())

        threading.Thread(target=wait, name="inbox", daemon=True).start()

    def next_messages(self) -> tuple[Message, ...]:
        """Return the messages of the next prompt: all urgent ones, or the first. Raises OSError.

        Urgent ones go together, so that none of them interrupts the turn of another one before that was read.
        """
        waiting = self._waiting()
        urgent = tuple(message for message in waiting if message.priority == PromptPriority.URGENT)
        return urgent or tuple(waiting[:1])

    def _waiting(self) -> list[Message]:
        pending = inbox.list_pending(self._run_dir.paths, self._run_dir.agent)
        return [message for message in pending if message.id not in self._taken]

    def take(self, messages: tuple[Message, ...], now: datetime) -> str:
        """Record that the messages are sent to the program, and return the prompt. Raises OSError, LizaError."""
        paths, agent, run = self._run_dir.paths, self._run_dir.agent, self._run_dir.run
        counted = tuple(replace(message, attempts=message.attempts + 1, tried=now, run=run) for message in messages)
        for message in counted:
            inbox.update_message(paths, agent, message)
        inbox.log_events(paths, agent, counted, DeliveryEvent.ATTEMPTED, MessageChannel.ACP, now)
        crash_points.point("acp", "taken")
        self._taken |= {message.id for message in messages}
        return "\n".join(map(self._format, messages))

    def _format(self, message: Message) -> str:
        text = message.text if message.sender == LIZA else inbox.format_messages((message,))
        return f"{AGAIN}\n{text}" if message.id in self._doubted else text

    def take_quoted(self, prompt: str) -> tuple[str, ...]:
        """Take the messages whose whole text is in the first prompt, and return their ids: the brief quotes those that
        waited, and has the notes of the board, of which `liza note --now` makes messages as well."""
        lines = _squeeze_lines(prompt)
        quoted = tuple(
            message.id
            for message in self._waiting()
            if _contains(lines, inbox.format_messages((message,))) or _contains(lines, _format_note(message))
        )
        self._taken |= set(quoted)
        return quoted

    def give_back(self, messages: tuple[str, ...]) -> None:
        """Let these messages be sent again: their turn was interrupted before the program showed that it read them."""
        self._taken -= set(messages)
        self._doubted |= set(messages)

    def acknowledge(self, messages: tuple[str, ...], now: datetime) -> None:
        """Acknowledge messages: the program works on them. Raises OSError, LizaError."""
        if messages:
            paths, agent, run = self._run_dir.paths, self._run_dir.agent, self._run_dir.run
            inbox.acknowledge(paths, agent, messages, run, EVIDENCE, now, MessageChannel.ACP)
            crash_points.point("acp", "acknowledged")


def _format_note(message: Message) -> str:
    return f"{NOTE_PREFIX}{quote_lines(message.text, inbox.MAX_MESSAGE_BYTES)}"


def _squeeze_lines(text: str) -> list[str]:
    """Return the lines that have text, without blanks; one blank remains before those that continue a quotation."""
    lines = ((" " if line.startswith("  ") else "") + "".join(line.split()) for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def _contains(lines: list[str], quotation: str) -> bool:
    """Return whether the lines hold the whole quotation, and it does not go on after it."""
    wanted = _squeeze_lines(quotation)
    ends = (start + len(wanted) for start, line in enumerate(lines) if line == wanted[0])
    return any(
        lines[end - len(wanted) : end] == wanted and not (end < len(lines) and lines[end].startswith(" "))
        for end in ends
    )
