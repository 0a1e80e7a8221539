"""Messages to the agent's living session: what was decided for one is done, and how far it came is kept."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from liza.crew.liza_path import liza_path
from liza.programs.messages import inbox
from liza.programs.terminal import keyboard, tmux
from liza.programs.terminal.keyboard import NotSent, Sent
from liza.rules.errors import UsageError
from liza.rules.sessions import message_rules
from liza.rules.sessions.message_rules import Message, MessageStage
from liza.supervisor.launch import Launcher


@dataclass(frozen=True)
class TypingDone:
    """The event: typing a message into the session of ``run`` is over."""

    run: str
    message: Message
    outcome: Sent | NotSent
    is_pasted: bool = False
    """Whether it was put into its terminal, and was taken there or stands there still."""


class MessageCarrier:
    """Carries messages to the sessions of one agent. Typing is done beside the loop, one message at a time, and its end
    is an event for ``post``; ``say`` hears what comes of each."""

    def __init__(self, agent: str, launcher: Launcher, post: Callable[[Any], None], say: Callable[[str], None]) -> None:
        self.agent = agent
        self.launcher = launcher
        self.crew = launcher.crew
        self.post = post
        self.notify = say
        self._finished: list[TypingDone] = []
        self._dead_run: str | None = None
        """The run whose program was found dead: its end is on the way."""
        self._typing: threading.Thread | None = None

    def can_type(self, run: str) -> bool:
        """Whether something can be carried into the session of ``run`` now: nothing is being typed, and it was not
        found dead."""
        return self._typing is None and run != self._dead_run

    def carry_out(self, step: message_rules.DeliveryStep, run: str) -> None:
        """One step for one message. Raises LizaError, OSError; then it is tried again."""
        match step:
            case message_rules.TypeMessage(message):
                self._start_typing(message, run)
            case message_rules.PutInBrief(message):
                self._put_in_brief(message)
            case message_rules.TellPerson(message):
                self._report_unread(message)
            case _:
                raise AssertionError(step)

    def record_typing(self) -> None:
        """Keep what came of typing that is over. Raises OSError, LizaError."""
        while self._finished:
            typed = self._finished[0]
            self._typing = None
            self._record_outcome(typed)
            self._finished.pop(0)

    def acknowledge_from_screen(self, run: str) -> None:
        """Messages whose acknowledgment the terminal shows were read. Raises LizaError, OSError."""
        waiting = [one for one in inbox.list_pending(self.crew.paths, self.agent) if one.carried and one.run == run]
        found = tmux.find_pane(self.crew.paths.root, run) if waiting else None
        if found is None:
            return
        shown = found.capture(history=200)
        patterns = self.crew.board.read().config.delivery.acknowledgment_patterns
        if any(_is_match(pattern, shown) for pattern in patterns):
            ids = tuple(one.id for one in waiting)
            inbox.acknowledge(self.crew.paths, self.agent, ids, run, "answered", self.crew.clock.now())

    def _start_typing(self, message: Message, run: str) -> None:
        if not self.can_type(run):
            return
        # Counted before it begins: a supervisor that dies of it must not type it for ever.
        self._update(message, attempts=message.attempts + 1, carried=False, run=run)
        now = replace(message, attempts=message.attempts + 1, run=run)

        def work() -> None:
            came = self._send_keys(now, run)
            typed = TypingDone(run, now, came, isinstance(came, Sent) or came.is_left_unsent)
            self._finished.append(typed)
            self.post(typed)

        self._typing = threading.Thread(target=work, name=f"type-{run}", daemon=True)
        self._typing.start()

    def _send_keys(self, message: Message, run: str) -> Sent | NotSent:
        try:
            found = tmux.find_pane(self.crew.paths.root, run)
            if found is None:
                return NotSent("its terminal is gone", is_retryable=False)
            how = self.crew.board.read().config.delivery
            return keyboard.send(
                found,
                message_rules.format_typed(message, how, shlex.quote(str(liza_path()))),
                self.launcher.preset,
                self.crew.clock,
                how.readiness_timeout,
                patterns=how.readiness_patterns,
                wanted=lambda: self._claim_message(message, run),
            )
        except Exception as error:  # noqa: BLE001 - nobody would ever type again; it is said, and tried again
            return NotSent(str(error) or type(error).__name__)

    def _claim_message(self, message: Message, run: str) -> bool:
        """Whether nobody brought it meanwhile, nothing more urgent came, and no hook will bring it from now on."""
        return inbox.claim_for_typing(self.crew.paths, self.agent, message.id, run, self.crew.clock.now())

    def _record_outcome(self, typed: TypingDone) -> None:
        message = replace(typed.message, typing=typed.is_pasted)
        if isinstance(typed.outcome, NotSent) and not typed.outcome.counts_as_try:
            self._update(message, attempts=message.attempts - 1, carried=False)
            self._dead_run = typed.run if not typed.outcome.is_retryable else None
            return
        if isinstance(typed.outcome, NotSent):
            if typed.outcome.can_be_typed:
                self._update(message, carried=False)
            else:
                # It never will.
                self._put_in_brief(message)
            self.notify(f"message {message.id} was not typed: {typed.outcome.reason}")
            return
        self._update(message, carried=True)
        if message.sender == "liza" or not self.crew.board.read().config.delivery.require_acknowledgment:
            # What begins a session is acknowledged by its sentinel; a person may do without an answer.
            now = self.crew.clock.now()
            inbox.acknowledge(self.crew.paths, self.agent, (message.id,), typed.run, "typed", now)

    def _put_in_brief(self, message: Message) -> None:
        """Into the brief: the instructions file, the assignment, and what `liza ready` prints."""
        self.launcher.rewrite_brief(self.agent)
        self._update(message, stage=MessageStage.FILED)
        self.notify(f"message {message.id} stands in the brief now")

    def _report_unread(self, message: Message) -> None:
        self._update(message, stage=MessageStage.TOLD)
        short = " ".join(message.text.split())[:80]
        told = f"{self.agent} has not shown that it read {message.id} ({short})"
        self.crew.append_alert_log([f"message_unread  {told}. Next: liza logs {self.agent}"])
        self.notify(f"! {told}")

    def _update(self, message: Message, **changed: object) -> None:
        inbox.update_message(self.crew.paths, self.agent, replace(message, tried=self.crew.clock.now(), **changed))


def _is_match(pattern: str, shown: str) -> bool:
    try:
        return re.search(pattern, shown, re.IGNORECASE) is not None
    except re.error as error:
        raise UsageError(
            f"config.delivery.acknowledgment_patterns: {pattern!r} is no expression: {error}", "liza edit"
        ) from error
