"""The prompts that wait for this run: the messages of the agent's inbox, taken one at a time."""

from __future__ import annotations

import threading
from datetime import datetime
from queue import SimpleQueue
from typing import Any

from liza.programs.messages import inbox
from liza.programs.session.run_directory import RunDir
from liza.rules.sessions.message_rules import LIZA, Message
from liza.rules.value_classes import Value, replace
from liza.rules.worker_api.prompt_rules import PromptPriority
from liza.system import crash_points, file_growth

POLL_SECONDS = 1.0
"""Longest time until a new message is noticed if the system has no inotify."""
EVIDENCE = "acp prompt"


class InboxNews(Value):
    """Event: the inbox may have changed."""


class PromptQueue:
    """Takes messages for one run, and acknowledges them when the program has shown that it read them."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._taken: tuple[str, ...] = ()

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

    def first(self) -> Message | None:
        """Return the message that is to be sent next, or None. Raises OSError."""
        return next(iter(self._waiting()), None)

    def has_urgent(self) -> bool:
        """Return whether a message waits that interrupts the running turn. Raises OSError."""
        return any(message.priority == PromptPriority.URGENT for message in self._waiting())

    def _waiting(self) -> list[Message]:
        pending = inbox.list_pending(self._run_dir.paths, self._run_dir.agent)
        return [message for message in pending if message.id not in self._taken]

    def take(self, message: Message, now: datetime) -> str:
        """Record that the message is sent to the program, and return the prompt. Raises OSError, LizaError."""
        counted = replace(message, attempts=message.attempts + 1, tried=now, run=self._run_dir.run)
        inbox.update_message(self._run_dir.paths, self._run_dir.agent, counted)
        crash_points.point("acp", "taken")
        self._taken = (*self._taken, message.id)
        return message.text if message.sender == LIZA else inbox.format_messages((message,))

    def take_quoted(self, prompt: str) -> None:
        """Take the messages whose text is in the first prompt: the brief quotes those that waited."""
        squeezed = "".join(prompt.split())
        quoted = [
            message.id for message in self._waiting() if "".join(inbox.format_messages((message,)).split()) in squeezed
        ]
        self._taken = (*self._taken, *quoted)

    def acknowledge_taken(self, now: datetime) -> None:
        """Acknowledge what was taken: the program works on it. Raises OSError, LizaError."""
        if not self._taken:
            return
        inbox.acknowledge(self._run_dir.paths, self._run_dir.agent, self._taken, self._run_dir.run, EVIDENCE, now)
        self._taken = ()
        crash_points.point("acp", "acknowledged")
