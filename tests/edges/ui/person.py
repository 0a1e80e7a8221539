"""A person at `liza ui` without a terminal: presses keys, types, pastes, and reads the screen."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable

from rich.console import Console
from textual import events
from textual.pilot import Pilot
from textual.widgets import TextArea

from liza.crew.crew import Crew
from liza.ui.rules.lines import Target
from liza.ui.rules.snapshot import Snapshot, Wanted
from liza.ui.terminal.dialogs import BURST_SECONDS
from liza.ui.terminal.picture_app import PictureApp

LIMIT = 20.0
"""Seconds after which a condition that does not come true is a failure."""
NAMES = {" ": "space", ":": "colon", "?": "question_mark", "+": "plus"}


class Person:
    """Waits for conditions, never for a time."""

    def __init__(self, app: PictureApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, self.text
            await self.pilot.pause(0.01)

    async def press(self, *keys: str) -> None:
        """Press keys, more slowly than pasted text comes."""
        for key in keys:
            await self.pilot.press(NAMES.get(key, key))
            await self.pilot.pause(BURST_SECONDS / 3)
        await self.pilot.pause()
        await self.wait(lambda: not self.app.holds_keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        for letter in text:
            await self.press(letter)

    async def paste(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    async def begin(self, *keys: str) -> None:
        """Press keys that open a dialog."""
        dialogs = len(self.app.screen_stack)
        before = self.app.screen
        await self.press(*keys)
        await self.wait(lambda: len(self.app.screen_stack) > dialogs or self.app.screen is not before)

    async def choose(self, target: Target) -> None:
        await self.wait(lambda: any(line.target == target for line in self.app.body.lines))
        self.app.body.choose(target)

    async def open(self, wanted: Wanted) -> None:
        self.app.open(wanted)
        await self.wait(lambda: self.app.snapshot is not None and self.app.snapshot.wanted == wanted)

    @property
    def is_asked(self) -> bool:
        """Whether a dialog is open."""
        return len(self.app.screen_stack) > 1

    @property
    def fields(self) -> list[str]:
        return [field.text for field in self.app.screen.query(TextArea)]

    @property
    def notice(self) -> str:
        return "" if self.app.notice is None else self.app.notice.text

    @property
    def text(self) -> str:
        """The whole screen, with dialogs."""
        size = self.app.size
        console = Console(width=size.width, height=size.height, record=True, file=io.StringIO())
        console.print(self.app.screen._compositor.render_update(full=True, screen_stack=self.app._background_screens))
        return console.export_text()


def sit_down(
    crew: Crew,
    steps: Callable[[Person], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
    is_read_only: bool = False,
) -> None:
    """Do steps at the picture of a crew."""

    async def run() -> None:
        app = PictureApp(crew, is_read_only=is_read_only)
        async with app.run_test(size=size) as pilot:
            person = Person(app, pilot)
            await person.wait(lambda: isinstance(app.snapshot, Snapshot))
            await steps(person)

    asyncio.run(run())
