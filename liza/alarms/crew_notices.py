"""Send the alarms of a crew to the targets of `config.notify` while `liza up` runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from liza.alarms.current_alarms import find_alarms
from liza.alarms.notice_senders import NoticeSenders
from liza.alarms.notice_targets import configured_targets
from liza.board import events
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import NotifySettings
from liza.model.quiet_hours import parse_quiet_hours
from liza.tasks.evidence import gather_evidence

IDLE_SECONDS = 30.0
"""Seconds until the setting is read again while there are no targets."""
MIN_INTERVAL = 1.0
"""Seconds between two looks: to find all alarms costs as much as ten looks at the board."""
STOP_LIMIT = 5.0
"""Seconds to wait for the thread. Its children are killed before."""


class CrewNotices:
    """A thread that looks for alarms after each change of the board, and gives them to the senders of the targets.

    Only settings that a person confirmed count. A target that cannot be used is an alarm and stops nothing.
    """

    def __init__(self, crew: Crew, say: Callable[[str, str], None]) -> None:
        # An own board: the cache of the other one belongs to another thread.
        self._crew, self._say = Crew(crew.paths, crew.clock, moved_reason=crew.moved_reason), say
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the deliveries that are under way, and the thread. What was not sent is sent by the next command."""
        self._stopping.set()
        self._thread.join(STOP_LIMIT)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = IDLE_SECONDS
            # The supervisors report a board that cannot be read.
            with suppress(LizaError, OSError):
                settings = self._crew.board.read().config.notify
                if settings.is_wanted:
                    self._follow(settings)
                    pause = MIN_INTERVAL

    def _follow(self, settings: NotifySettings) -> None:
        """Send alarms until the setting changes or the thread is to end. Raises LizaError, OSError."""
        # Loaded now: most crews have no targets.

        targets = configured_targets(settings)
        self._say("", f"alarms that need you are sent to {', '.join(target.label for target in targets)}")
        quiet = parse_quiet_hours(settings.quiet) if settings.quiet is not None else None
        changes: queue.Queue[Any] = queue.Queue()
        with NoticeSenders(self._crew, targets, quiet) as senders, events.watch(self._crew.paths) as watch:
            watch.subscribe(changes)
            while not self._stopping.is_set():
                while not changes.empty():
                    changes.get()
                state = self._crew.board.read()
                if state.config.notify != settings:
                    return
                senders.update(find_alarms(self._crew, state, gather_evidence(self._crew, state)))
                self._wait(changes, state.config.poll_interval)

    def _wait(self, changes: queue.Queue[Any], longest: int) -> None:
        """Wait for a change, at least MIN_INTERVAL and at most ``longest`` seconds, or for the end of the thread."""
        self._stopping.wait(MIN_INTERVAL)
        for _ in range(max(0, longest - 1)):
            if self._stopping.is_set():
                return
            with suppress(queue.Empty):
                changes.get(timeout=1.0)
                return
