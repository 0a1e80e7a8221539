"""The crew as all open pages show it: read once for each change, drawn once for each page that is open."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Final

from liza.crew.crew import Crew
from liza.model.value_classes import Value, replace
from liza.system.clock import boottime
from liza.ui.act import find_losses
from liza.ui.facts import gather
from liza.ui.follower import Follower
from liza.ui.rules.snapshot import Snapshot, Wanted, keep_last_good
from liza.ui.seen import read_seen, write_seen
from liza.ui.web.page_actions import PageWork
from liza.ui.web.pages import Page, PageKey, draw_page
from liza.view.rules.structs import Picture

VISIT_PAUSE: Final = 300.0
"""Seconds without an open page after which the next one is another visit."""
MAX_PAGES: Final = 16
"""Drawn pages that are kept."""
LATE_TIME: Final = timedelta(seconds=20)
"""How long a reading of the crew can take."""


class DrawnPage(Value):
    """A page, and the number of the reading that it was drawn from."""

    number: int
    page: Page


class PageFeed:
    """Follows the crew in a thread. ``number`` grows with each reading that differs; streams wait for the next."""

    def __init__(self, crew: Crew, work: PageWork, is_read_only: bool) -> None:
        self.crew, self.work, self.is_read_only = crew, work, is_read_only
        self.number = 0
        self.snapshot: Snapshot | None = None
        self._read_at = boottime()
        self._follower = Follower(crew, self._accept)
        self._changed = asyncio.Event()
        self._first = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drawn: OrderedDict[PageKey, DrawnPage] = OrderedDict()
        self._lock = threading.Lock()
        # The follower's thread reads another copy of the board. A copy for each page would parse the whole board.
        self._drawing_crew = replace(crew)
        self._open = 0
        self._left: float | None = None

    def start(self) -> None:
        """Begin to follow. Call it in the thread of the event loop."""
        self._loop = asyncio.get_running_loop()
        self._follower.start(Wanted())

    def stop(self) -> None:
        """End the thread, and wake all that wait."""
        self._follower.stop()
        self._changed.set()

    @property
    def age(self) -> float:
        """Seconds since the crew was read last."""
        return boottime() - self._read_at

    async def reread(self) -> None:
        """Read the crew now: a page that is drawn after an action shows what it changed."""
        feed = "" if self.snapshot is None else self.snapshot.feed
        reading = partial(gather, replace(self.crew), Wanted(), feed)
        fresh = await asyncio.get_running_loop().run_in_executor(None, reading)
        self._take(keep_last_good(self.snapshot, fresh))
        self._follower.refresh()

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Note that a page is open. A visit ends when no page was open for ``VISIT_PAUSE``."""
        if not self._open and (self._left is None or boottime() - self._left > VISIT_PAUSE):
            seen = read_seen(self.crew)
            is_earlier = seen is not None and (self.crew.clock.now() - seen).total_seconds() > VISIT_PAUSE
            self.work.seen = seen if is_earlier else None
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._left = boottime()
            if self.snapshot is not None and isinstance(self.snapshot.picture, Picture):
                write_seen(self.crew, self.snapshot.picture)

    async def wait_for_first(self, limit: float) -> None:
        """Wait until the crew was read for the first time, at most ``limit`` seconds."""
        try:
            await asyncio.wait_for(self._first.wait(), limit)
        except TimeoutError:
            return

    async def wait_for_change(self, number: int, limit: float) -> None:
        """Wait for a reading with another number, at most ``limit`` seconds."""
        if self.number != number:
            return
        try:
            await asyncio.wait_for(self._changed.wait(), limit)
        except TimeoutError:
            return

    def draw(self, key: PageKey) -> DrawnPage:
        """Return a page as the crew is now. Call it in a thread."""
        with self._lock:
            number, snapshot = self.number, self.snapshot
            drawn = self._drawn.get(key)
            if drawn is not None and drawn.number == number:
                return drawn
            picture = None if snapshot is None or snapshot.fault is not None else snapshot.picture
            if snapshot is None or key.wanted != snapshot.wanted:
                fresh = gather(self._drawing_crew, key.wanted, "" if snapshot is None else snapshot.feed, picture)
                snapshot = fresh if snapshot is None or snapshot.fault is None else _with_fault(fresh, snapshot)
            page = draw_page(snapshot, key, self.work, self.is_read_only, partial(find_losses, self.crew))
            drawn = DrawnPage(number, page)
            self._drawn[key] = drawn
            self._drawn.move_to_end(key)
            while len(self._drawn) > MAX_PAGES:
                self._drawn.popitem(last=False)
            return drawn

    def _accept(self, snapshot: Snapshot) -> None:
        self._in_loop(lambda: self._take(snapshot))

    def _take(self, snapshot: Snapshot) -> None:
        if self._is_late(snapshot):
            return
        self._read_at = boottime()
        is_new = snapshot is not self.snapshot
        self.snapshot = snapshot
        self._first.set()
        if is_new:
            self._announce()

    def _is_late(self, snapshot: Snapshot) -> bool:
        """Return whether a reading began before the one that is shown: the thread was at it while an action ended."""
        shown = self.snapshot
        if shown is None or shown.fault is not None or snapshot.fault is not None:
            return False
        return timedelta(0) < shown.time - snapshot.time < LATE_TIME  # more: the clock was set back

    def _announce(self) -> None:
        self.number += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _in_loop(self, function: Callable[[], None]) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)


def _with_fault(fresh: Snapshot, last: Snapshot) -> Snapshot:
    """Return a reading with the last good picture, and why there is no newer one."""
    return replace(fresh, fault=last.fault, picture=last.picture, time=last.time)
