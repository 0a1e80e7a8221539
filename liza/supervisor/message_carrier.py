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
from liza.rules.errors import Usage
from liza.rules.sessions import message_rules
from liza.rules.sessions.message_rules import Message, Stage
from liza.supervisor.launch import Launcher


@dataclass(frozen=True)
class Typed:
    """The event: typing a message into the session of ``run`` is over."""

    run: str
    message: Message
    came: Sent | NotSent
    put: bool = False
    """Whether it was put into its terminal, and was taken there or stands there still."""


class MessageCarrier:
    """Carries messages to the sessions of one agent. Typing is done beside the loop, one message at a time, and its end
    is an event for ``post``; ``say`` hears what comes of each."""

    def __init__(self, agent: str, launcher: Launcher, post: Callable[[Any], None], say: Callable[[str], None]) -> None:
        self.agent = agent
        self.launcher = launcher
        self.crew = launcher.crew
        self.post = post
        self.say = say
        self._over: list[Typed] = []
        self._dead: str | None = None
        """The run whose program was found dead: its end is on the way."""
        self._typing: threading.Thread | None = None

    def takes(self, run: str) -> bool:
        """Whether something can be carried into the session of ``run`` now: nothing is being typed, and it was not
        found dead."""
        return self._typing is None and run != self._dead

    def carry_out(self, step: message_rules.Step, run: str) -> None:
        """One step for one message. Raises LizaError, OSError; then it is tried again."""
        match step:
            case message_rules.Type(message):
                self._type(message, run)
            case message_rules.PutInBrief(message):
                self._file(message)
            case message_rules.TellPerson(message):
                self._tell(message)
            case _:
                raise AssertionError(step)

    def settle(self) -> None:
        """Keep what came of typing that is over. Raises OSError, LizaError."""
        while self._over:
            typed = self._over[0]
            self._typing = None
            self._came(typed)
            self._over.pop(0)

    def listen(self, run: str) -> None:
        """Messages whose acknowledgment the terminal shows were read. Raises LizaError, OSError."""
        waiting = [one for one in inbox.pending(self.crew.paths, self.agent) if one.carried and one.run == run]
        found = tmux.pane(self.crew.paths.root, run) if waiting else None
        if found is None:
            return
        shown = found.capture(history=200)
        patterns = self.crew.board.read().config.delivery.acknowledgment_patterns
        if any(_shows(pattern, shown) for pattern in patterns):
            ids = tuple(one.id for one in waiting)
            inbox.acknowledge(self.crew.paths, self.agent, ids, run, "answered", self.crew.clock.now())

    def _type(self, message: Message, run: str) -> None:
        if not self.takes(run):
            return
        # Counted before it begins: a supervisor that dies of it must not type it for ever.
        self._keep(message, attempts=message.attempts + 1, carried=False, run=run)
        now = replace(message, attempts=message.attempts + 1, run=run)

        def work() -> None:
            came = self._typed(now, run)
            typed = Typed(run, now, came, isinstance(came, Sent) or came.left)
            self._over.append(typed)
            self.post(typed)

        self._typing = threading.Thread(target=work, name=f"type-{run}", daemon=True)
        self._typing.start()

    def _typed(self, message: Message, run: str) -> Sent | NotSent:
        try:
            found = tmux.pane(self.crew.paths.root, run)
            if found is None:
                return NotSent("its terminal is gone", later=False)
            how = self.crew.board.read().config.delivery
            return keyboard.send(
                found,
                message_rules.typed(message, how, shlex.quote(str(liza_path()))),
                self.launcher.preset,
                self.crew.clock,
                how.readiness_timeout,
                patterns=how.readiness_patterns,
                wanted=lambda: self._take(message, run),
            )
        except Exception as error:  # noqa: BLE001 - nobody would ever type again; it is said, and tried again
            return NotSent(str(error) or type(error).__name__)

    def _take(self, message: Message, run: str) -> bool:
        """Whether nobody brought it meanwhile, nothing more urgent came, and no hook will bring it from now on."""
        return inbox.take(self.crew.paths, self.agent, message.id, run, self.crew.clock.now())

    def _came(self, typed: Typed) -> None:
        message = replace(typed.message, typing=typed.put)
        if isinstance(typed.came, NotSent) and not typed.came.tried:
            self._keep(message, attempts=message.attempts - 1, carried=False)
            self._dead = typed.run if not typed.came.later else None
            return
        if isinstance(typed.came, NotSent):
            if typed.came.fits:
                self._keep(message, carried=False)
            else:
                # It never will.
                self._file(message)
            self.say(f"message {message.id} was not typed: {typed.came.reason}")
            return
        self._keep(message, carried=True)
        if message.sender == "liza" or not self.crew.board.read().config.delivery.require_acknowledgment:
            # What begins a session is acknowledged by its sentinel; a person may do without an answer.
            now = self.crew.clock.now()
            inbox.acknowledge(self.crew.paths, self.agent, (message.id,), typed.run, "typed", now)

    def _file(self, message: Message) -> None:
        """Into the brief: the instructions file, the assignment, and what `liza ready` prints."""
        self.launcher.brief_again(self.agent)
        self._keep(message, stage=Stage.FILED)
        self.say(f"message {message.id} stands in the brief now")

    def _tell(self, message: Message) -> None:
        self._keep(message, stage=Stage.TOLD)
        short = " ".join(message.text.split())[:80]
        told = f"{self.agent} has not shown that it read {message.id} ({short})"
        self.crew.write_down([f"message_unread  {told}. Next: liza logs {self.agent}"])
        self.say(f"! {told}")

    def _keep(self, message: Message, **changed: object) -> None:
        inbox.keep(self.crew.paths, self.agent, replace(message, tried=self.crew.clock.now(), **changed))


def _shows(pattern: str, shown: str) -> bool:
    try:
        return re.search(pattern, shown, re.IGNORECASE) is not None
    except re.error as error:
        raise Usage(
            f"config.delivery.acknowledgment_patterns: {pattern!r} is no expression: {error}", "liza edit"
        ) from error
