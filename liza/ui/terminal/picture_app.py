"""The picture as an application of textual: it shows drawings, and turns keys into changes of the view."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from liza.crew.crew import Crew
from liza.model.value_classes import replace
from liza.ui.follower import Follower
from liza.ui.rules.drawing import draw
from liza.ui.rules.keys import SCREEN_KEYS, keys_of
from liza.ui.rules.lines import TargetKind
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import ScreenName, Snapshot, Wanted
from liza.ui.terminal.action_app import ActionApp
from liza.ui.terminal.row_list import RowList

_TABS = tuple(SCREEN_KEYS.values())


class PictureApp(ActionApp):
    """Shows a crew until the person leaves."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = []
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #header { height: auto; max-height: 8; }
    #middle { height: 1fr; }
    #body { width: 1fr; }
    #side { width: 0; border-left: none; }
    #footer { height: 1; }
    """

    def __init__(self, crew: Crew, *, is_read_only: bool) -> None:
        super().__init__()
        self.crew = crew
        self.view = PictureView(columns=80, rows=24, is_read_only=is_read_only)
        self.snapshot: Snapshot | None = None
        self._read_at = time.monotonic()
        self.follower = Follower(crew, lambda snapshot: self.call_from_thread(self.take, snapshot))
        self._earlier: list[Wanted] = []

    def compose(self) -> ComposeResult:
        """Yield the parts: header, list and side, footer."""
        yield RowList("header")
        with Horizontal(id="middle"):
            yield RowList("body", has_cursor=True)
            yield RowList("side")
        yield RowList("footer")

    def on_mount(self) -> None:
        """Begin to follow the crew."""
        self.follower.start(self.view.wanted)
        self.set_interval(1.0, self.show_picture)

    def on_unmount(self) -> None:
        """End the thread."""
        self.follower.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self.view = replace(self.view, columns=event.size.width, rows=event.size.height)
        self.show_picture()

    def take(self, snapshot: Snapshot) -> None:
        """Show a new snapshot."""
        self.snapshot, self._read_at = snapshot, time.monotonic()
        self.show_picture()

    def show_picture(self) -> None:
        """Draw what is known."""
        if self.snapshot is None:
            return
        view = replace(self.view, chosen=self.body.chosen, age=time.monotonic() - self._read_at)
        drawing = draw(self.snapshot, view)
        header, side = self.query_one("#header", RowList), self.query_one("#side", RowList)
        header.styles.height = len(drawing.header)
        side.styles.width = view.side_columns
        header.show_lines(drawing.header)
        self.body.show_lines(drawing.body)
        side.show_lines(drawing.side)
        self.query_one("#footer", RowList).show_lines((self.notice or drawing.footer,))
        self.note_seen(drawing.body)

    def on_key(self, event: events.Key) -> None:
        """Do what a key does on this screen. Keys of a dialog do nothing here."""
        if len(self.screen_stack) > 1:
            return
        if self.notice is not None:
            self.notice = None
            self.show_picture()
        if event.character in SCREEN_KEYS:
            self.open(Wanted(SCREEN_KEYS[event.character]))
            return
        for key in keys_of(self.view.screen, self.view.is_read_only):
            if event.key in key.presses or event.character in key.presses:
                event.stop()
                press = getattr(self, f"press_{key.command}")
                self.hold_key(press) if key.changes or self.holds_keys else press()
                return

    def open(self, wanted: Wanted) -> None:
        """Show another screen."""
        self._earlier.append(self.view.wanted)
        self._go(wanted)

    def _go(self, wanted: Wanted) -> None:
        self.view = replace(self.view, wanted=wanted)
        self.follower.show(wanted)

    def press_open(self) -> None:
        """Open what is under the cursor."""
        target = self.body.chosen
        if target is not None and target.kind is TargetKind.TASK:
            self.open(Wanted(ScreenName.TASK, target.name))
        elif target is not None and target.kind is TargetKind.AGENT:
            self.open(Wanted(ScreenName.SESSION, target.name))

    def press_back(self) -> None:
        """Return to the screen before."""
        if self._earlier:
            self._go(self._earlier.pop())

    def press_next_screen(self) -> None:
        """Show the next screen."""
        self._turn(1)

    def press_previous_screen(self) -> None:
        """Show the screen before, in the order of the digits."""
        self._turn(-1)

    def _turn(self, steps: int) -> None:
        number = _TABS.index(self.view.screen) if self.view.screen in _TABS else 0
        self.open(Wanted(_TABS[(number + steps) % len(_TABS)]))

    def press_down(self) -> None:
        """Move down."""
        self.body.move(1)

    def press_up(self) -> None:
        """Move up."""
        self.body.move(-1)

    def press_page_down(self) -> None:
        """Move down a page."""
        self.body.move(self.body.size.height - 1)

    def press_page_up(self) -> None:
        """Move up a page."""
        self.body.move(1 - self.body.size.height)

    def press_first(self) -> None:
        """Move to the first line."""
        self.body.move(-self.body.length)

    def press_last(self) -> None:
        """Move to the last line."""
        self.body.move(self.body.length)

    def press_merged(self) -> None:
        """Show or fold the merged tasks."""
        self.view = replace(self.view, shows_merged=not self.view.shows_merged)
        self.show_picture()

    def press_given_up(self) -> None:
        """Show or hide the tasks that were given up."""
        self.view = replace(self.view, shows_given_up=not self.view.shows_given_up)
        self.show_picture()

    def press_help(self) -> None:
        """Show all keys."""

    def press_leave(self) -> None:
        """Leave; the crew goes on."""
        self.exit()
