"""The picture as an application of textual: it shows drawings, and turns keys into changes of the view."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input

from liza.crew.crew import Crew
from liza.model.errors import UsageError
from liza.model.value_classes import replace
from liza.system.clock import boottime
from liza.ui.follower import Follower
from liza.ui.rules.drawing import Drawing, draw, draw_loading
from liza.ui.rules.filtering import parse_filter
from liza.ui.rules.header import STALE_AFTER
from liza.ui.rules.keys import SCREEN_KEYS, keys_of
from liza.ui.rules.lines import Target, TargetKind
from liza.ui.rules.picture_view import Filter, Fold, PictureView
from liza.ui.rules.snapshot import ScreenName, Snapshot, Wanted
from liza.ui.seen import read_seen, write_seen
from liza.ui.terminal.action_app import ActionApp
from liza.ui.terminal.filter_line import FilterLine, FilterPart
from liza.ui.terminal.row_list import RowList
from liza.view.rules.structs import Picture

_TABS = tuple(SCREEN_KEYS.values())
AGE_SECONDS = STALE_AFTER / 2 + 0.1
"""Seconds after which the age of the picture is checked. A reading begins them anew: usually they never end."""


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
        self.view = PictureView(columns=80, rows=24, is_read_only=is_read_only, seen=read_seen(crew))
        self.snapshot: Snapshot | None = None
        self._read_at = boottime()
        self.follower = Follower(crew, lambda snapshot: self.call_from_thread(self.take, snapshot))
        self._earlier: list[Wanted] = []
        self._chosen: dict[ScreenName, Target | None] = {}

    def compose(self) -> ComposeResult:
        """Yield the parts: header, list and side, footer."""
        yield RowList("header")
        with Horizontal(id="middle"):
            yield RowList("body", has_cursor=True)
            yield RowList("side")
        yield RowList("footer")
        yield FilterLine()

    def on_mount(self) -> None:
        """Begin to follow the crew."""
        self.follower.start(self.view.wanted)
        self._stale_timer = self.set_interval(AGE_SECONDS, self.show_picture)

    def on_unmount(self) -> None:
        """End the thread."""
        self.follower.stop()
        self._remember_visit()

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self.view = replace(self.view, columns=event.size.width, rows=event.size.height)
        self.show_picture()

    def take(self, snapshot: Snapshot) -> None:
        """Show a new snapshot, or that the last one still holds."""
        is_news = snapshot is not self.snapshot or boottime() - self._read_at >= STALE_AFTER
        self.snapshot, self._read_at = snapshot, boottime()
        self._stale_timer.reset()
        if is_news:
            self.show_picture()

    @property
    def _is_read_only(self) -> bool:
        """Whether no key changes anything now: nothing is done to a crew that cannot be read."""
        return self.view.is_read_only or self.snapshot is None or self.snapshot.fault is not None

    def show_picture(self) -> None:
        """Draw what is known. A verb can end while the app does: nothing is drawn then."""
        if not self.query(RowList):
            return
        if self.snapshot is None:
            self._show_drawing(draw_loading(self.view))
            return
        age = boottime() - self._read_at
        view = replace(self.view, chosen=self.body.chosen, age=age, is_read_only=self._is_read_only)
        self._show_drawing(draw(self.snapshot, view))

    def _show_drawing(self, drawing: Drawing) -> None:
        header, side = self.query_one("#header", RowList), self.query_one("#side", RowList)
        header.styles.height = len(drawing.header)
        side.styles.width = self.view.side_columns
        header.show_lines(drawing.header)
        follows = self.view.screen is ScreenName.SESSION and self.body.is_at_end
        self.body.show_lines(drawing.body, self.diff_version)
        if follows:
            self.body.scroll_to_last()
        side.show_lines(drawing.side)
        self.query_one("#footer", RowList).show_lines((self.notice or drawing.footer,))

    def on_key(self, event: events.Key) -> None:
        """Do what a key does on this screen. A dialog takes its own keys."""
        if len(self.screen_stack) > 1:
            if event.key == "escape":
                self.press_back()
            return
        line = self.query_one(FilterLine)
        if line.is_open:
            if event.key == "escape":
                line.close()
            return
        if self.notice is not None:
            self.notice = None
            self.show_picture()
        if event.character in SCREEN_KEYS:
            self.open(Wanted(SCREEN_KEYS[event.character]))
            return
        for key in keys_of(self.view.screen, self._is_read_only):
            if event.key in key.presses or event.character in key.presses:
                event.stop()
                press = getattr(self, f"press_{key.command}")
                self.hold_key(press) if key.changes or self.holds_keys else press()
                return
        if any(event.key in key.presses or event.character in key.presses for key in keys_of(self.view.screen, False)):
            self.say("read-only: no key changes anything" if self.view.is_read_only else "the crew cannot be read")

    def open(self, wanted: Wanted) -> None:
        self._earlier.append(self.view.wanted)
        self._go(wanted)

    def _go(self, wanted: Wanted) -> None:
        if self.view.screen is ScreenName.HISTORY and wanted.screen is not ScreenName.HISTORY:
            self._remember_visit()
        self._chosen[self.view.screen] = self.body.chosen
        self.view = replace(self.view, wanted=wanted)
        self.follower.show(wanted)
        # What was read already is shown at once.
        self.show_picture()
        chosen = self._chosen.get(wanted.screen)
        if chosen is not None:
            self.body.choose(chosen)

    def _remember_visit(self) -> None:
        """Record that the person saw what is shown now; a picture that changes nothing does not."""
        if self.snapshot is not None and isinstance(self.snapshot.picture, Picture) and not self.view.is_read_only:
            write_seen(self.crew, self.snapshot.picture)
            self.view = replace(self.view, seen=self.snapshot.picture.time)

    def press_open(self) -> None:
        """Open what is under the cursor."""
        target = self.body.chosen
        if target is not None and target.kind is TargetKind.TASK:
            self.open(Wanted(ScreenName.TASK, target.name))
        elif target is not None and target.kind is TargetKind.AGENT:
            self.open(Wanted(ScreenName.SESSION, target.name))
        elif target is not None and target.kind is TargetKind.FOLD:
            self._turn_fold(Fold(target.name))

    def press_back(self) -> None:
        """Close a dialog that was not there yet when Escape was typed; else end the filter, or return to before."""
        if len(self.screen_stack) > 1:
            self.screen.post_message(events.Key("escape", None))
        elif self.view.is_filtered:
            self._set_filter(Filter())
        elif self._earlier:
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
        self.body.turn_page(1)

    def press_page_up(self) -> None:
        """Move up a page."""
        self.body.turn_page(-1)

    def press_first(self) -> None:
        """Move to the first line."""
        self.body.move(-self.body.length)

    def press_last(self) -> None:
        """Move to the last line."""
        self.body.move(self.body.length)

    def press_merged(self) -> None:
        """Show or fold the merged tasks."""
        self._turn_fold(Fold.MERGED)

    def press_given_up(self) -> None:
        """Show or hide the tasks that were given up."""
        self._turn_fold(Fold.GIVEN_UP)

    def _turn_fold(self, fold: Fold) -> None:
        self.view = replace(self.view, unfolded=self.view.unfolded ^ {fold})
        self.show_picture()

    def press_find(self) -> None:
        """List only what has a text; the list follows the typing."""
        self.query_one(FilterLine).ask(FilterPart.TEXT, self.view.filter.text)

    def press_filter(self) -> None:
        """List only some statuses, or one agent."""
        wanted = self.view.filter
        self.query_one(FilterLine).ask(FilterPart.WORDS, ", ".join(filter(None, (*wanted.words, wanted.agent))))

    def on_input_changed(self, event: Input.Changed) -> None:
        """List what has the text that is being typed."""
        line = self.query_one(FilterLine)
        if event.input is line and line.is_open and line.part is FilterPart.TEXT:
            self._set_filter(replace(self.view.filter, text=event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the filter."""
        line = self.query_one(FilterLine)
        if event.input is not line:
            return
        if line.part is FilterPart.WORDS and self.snapshot is not None:
            picture = self.snapshot.picture
            agents = [row.row.id for row in picture.agents] if isinstance(picture, Picture) else []
            try:
                self._set_filter(parse_filter(event.value, self.view.filter, agents))
            except UsageError as error:
                self.say(error.message)
                return
        line.close()

    def _set_filter(self, wanted: Filter) -> None:
        self.view = replace(self.view, filter=wanted)
        self.show_picture()

    def press_help(self) -> None:
        """Show all keys."""
        self.open(Wanted(ScreenName.HELP))

    def action_help_quit(self) -> None:
        """Name the key that leaves, after Ctrl+C."""
        self.say("q leaves; the crew goes on")

    async def action_quit(self) -> None:
        """Name the key that leaves, after Ctrl+Q: what is typed in a form is not lost by it."""
        self.action_help_quit()
