"""Other credentials for a run, looked for beside its stream: a command that prints a secret may take seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Executor

from liza.api.api_answers import CredentialsEvent
from liza.model.errors import LizaError

FindRotated = Callable[[Collection[str]], tuple[CredentialsEvent, ...]]


class CredentialWatch:
    """Looks in another thread, one look at a time. Used only in the thread of the event loop.

    ``find`` gets the ids of the events that this stream has sent. ``wake`` is called after each look.
    """

    def __init__(self, executor: Executor, find: FindRotated, wake: Callable[[], None]) -> None:
        self._executor, self._find, self._wake = executor, find, wake
        self._look: asyncio.Future[tuple[CredentialsEvent, ...]] | None = None
        self._is_outdated = False
        self._sent: set[str] = set()

    def poll(self) -> tuple[CredentialsEvent, ...]:
        """Return what the last look found. Without one, or if it may be outdated, start another look."""
        if self._look is None:
            self._start()
            return ()
        if not self._look.done():
            self._is_outdated = True
            return ()
        events, self._look = self._look.result(), None
        self._sent.update(event.id for event in events)
        if self._is_outdated:
            self._start()
        return events

    def _start(self) -> None:
        self._is_outdated = False
        loop = asyncio.get_running_loop()
        self._look = loop.run_in_executor(self._executor, self._find_or_nothing, frozenset(self._sent))
        self._look.add_done_callback(lambda _: self._wake())

    def _find_or_nothing(self, sent: Collection[str]) -> tuple[CredentialsEvent, ...]:
        """Return nothing after an error: the worker keeps what it has, and the next look tries again."""
        try:
            return self._find(sent)
        except (LizaError, OSError):
            return ()
