"""A board that is parsed again only when its file has changed: the server is asked many times per second."""

from __future__ import annotations

import os
import threading

from liza.board.store import Board
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings
from liza.rules.model import State

_Stamp = tuple[int, int, int, int]


class CachedBoard(Board):
    """As Board. ``read`` returns the last state as long as the files that it depends on are the same."""

    _cached: tuple[tuple[_Stamp | None, ...], State] | None = None
    _reading = threading.Lock()

    def read(self) -> State:
        stamps = tuple(_stamp(path) for path in (self.paths.state, self.paths.pins, self.paths.write_intent))
        cached = self._cached
        if cached is not None and cached[0] == stamps and None not in stamps[:1]:
            return cached[1]
        # One thread parses; the others then find its result.
        with self._reading:
            cached = self._cached
            if cached is None or cached[0] != stamps:
                # The stamps are older than what is read: a change in between is found by the next call.
                self._cached = cached = (stamps, super().read())
            return cached[1]


def use_cached_board(crew: Crew) -> Crew:
    """Have this crew read its board through a cache."""
    vars(crew)["board"] = CachedBoard(
        crew.paths, crew.clock, lambda state: confirmed_settings.with_trusted_settings(crew.paths, state)
    )
    return crew


def _stamp(path: os.PathLike[str]) -> _Stamp | None:
    try:
        facts = os.stat(path)  # noqa: PTH116 - called for each request
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size, facts.st_ctime_ns
