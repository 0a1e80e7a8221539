"""Messages to the agent's living session: what was decided for one is done, and how far it came is kept."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from liza.programs import inbox
from liza.rules import delivering
from liza.rules.delivering import Message, Stage
from liza.supervisor.launch import Launcher


class Carrier:
    """Carries messages to the sessions of one agent; ``say`` hears what comes of each."""

    def __init__(self, agent: str, launcher: Launcher, say: Callable[[str], None]) -> None:
        self.agent = agent
        self.launcher = launcher
        self.crew = launcher.crew
        self.say = say

    def carry_out(self, step: delivering.Step) -> None:
        """One step for one message. Raises LizaError, OSError; then it is tried again."""
        match step:
            case delivering.Missed(message):
                self._keep(message, attempts=message.attempts + 1, carried=False)
            case delivering.File(message):
                self._file(message)
            case delivering.Tell(message):
                self._tell(message)
            case _:
                raise AssertionError(step)

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
