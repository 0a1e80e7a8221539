"""Dialogs over the picture: the menu of actions, the form of an action, and its confirmation."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import TextArea

from liza.model.value_classes import Value
from liza.printing.columns import cell_width, wrap_text
from liza.ui.rules.lines import Cell, Line, Span, Target, TargetKind, Tone, clean, cut, make_row, make_rule, wrap_line
from liza.ui.rules.offers import ActionClass, ActionName, Offer, command_of
from liza.ui.terminal.row_list import RowList

_MARGIN = 2
PAGE_STEPS: Final = {"pagedown": 5, "pageup": -5}
"""Lines that a key scrolls a dialog."""
BURST_SECONDS = 0.05
BURST_KEYS = 3
"""More keys than these within the seconds are pasted text, and not typed."""


class KeyPace:
    """Tells typed keys from pasted text by their times."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def is_burst(self, time: float) -> bool:
        """Note a key; return whether it came with so many others that they were pasted."""
        self._times = [*self._times[-BURST_KEYS:], time]
        return len(self._times) > BURST_KEYS and time - self._times[0] < BURST_SECONDS


class PictureDialog(ModalScreen[object]):
    """A box at the bottom of the picture. Keys of the picture do nothing while it is open."""

    CSS = """
    #box { height: auto; max-height: 100%; width: 100%; background: ansi_default; scrollbar-size: 0 0; }
    #box RowList { height: auto; background: ansi_default; }
    #box TextArea { height: auto; max-height: 4; background: ansi_default; color: ansi_default; border: none;
                    padding: 0; margin: 0 1 0 2; }
    """
    AUTO_FOCUS: ClassVar = ""
    BINDINGS: ClassVar = []

    def __init__(self) -> None:
        super().__init__()
        # In code: the rule of the app for all screens outranks a style sheet of this class.
        self.styles.align = ("left", "bottom")
        self.styles.background = "transparent"
        self._is_closed = False

    def close(self, result: object) -> None:
        """Close the dialog with its result. Keys that were typed until it is gone close nothing else."""
        if not self._is_closed:
            self._is_closed = True
            self.dismiss(result)

    def show_part(self, name: str, lines: Iterable[Line], *, has_cursor: bool = False) -> None:
        """Show wrapped lines in a part of the box, as high as they are."""
        width = max(8, self.app.size.width - _MARGIN)
        # A row of a list is cut, and a text is broken, so that all of it can be read.
        rows = tuple(lines) if has_cursor else tuple(part for line in lines for part in _wrap(line, width))
        part_list = self.query_one(f"#{name}", RowList)
        part_list.styles.height = min(len(rows), max(1, self.app.size.height - 4)) if has_cursor else len(rows)
        part_list.show_lines(rows)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw_parts()

    def turn_page(self, key: str) -> None:
        """Scroll what is higher than the terminal."""
        self.query_one("#box", VerticalScroll).scroll_relative(y=PAGE_STEPS[key], animate=False)

    def draw_parts(self) -> None:
        """Show the lines of all parts."""


class MenuDialog(PictureDialog):
    """All actions that are possible now. Its result: an offer, None, or the command to copy as a text."""

    def __init__(self, title: str, offers: Sequence[Offer]) -> None:
        super().__init__()
        self._title, self._offers = title, offers

    def compose(self) -> ComposeResult:
        """Yield title, list and keys."""
        with VerticalScroll(id="box", can_focus=False):
            yield RowList("menu-title")
            yield RowList("menu", has_cursor=True)
            yield RowList("menu-keys")

    def draw_parts(self) -> None:
        """Show each action with its command."""
        width = self.app.size.width
        rows = [
            make_row(
                (Cell(offer.name, 42), Cell(shlex.join(command_of(offer, ())), tone=Tone.DIM)),
                width,
                Target(TargetKind.TEXT, str(number)),
            )
            for number, offer in enumerate(self._offers)
        ]
        self.show_part("menu-title", [make_rule(self._title, width - _MARGIN)])
        self.show_part("menu", rows, has_cursor=True)
        self.show_part("menu-keys", [Line((Span("  enter begin  y copy its command  esc close", Tone.DIM),))])

    def on_key(self, event: events.Key) -> None:
        """Move, begin an action, or copy its command."""
        event.stop()
        menu = self.query_one("#menu", RowList)
        chosen = self._offers[int(menu.chosen.name)] if menu.chosen is not None else None
        if event.key in ("j", "down", "k", "up"):
            menu.move(1 if event.key in ("j", "down") else -1)
        elif event.key in ("escape", "q", "x"):
            self.close(None)
        elif event.key == "enter":
            self.close(chosen)
        elif event.key == "y" and chosen is not None:
            self.close(shlex.join(command_of(chosen, ())))


class Field(TextArea):
    """A field of a form. Enter ends it; pasted line breaks stay in the text."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, id=f"field-{number}", compact=True, highlight_cursor_line=False)
        self.cursor_blink = False
        self._pace = KeyPace()

    async def _on_key(self, event: events.Key) -> None:
        is_pasted = self._pace.is_burst(event.time)
        form = self.screen
        assert isinstance(form, FormDialog)
        if event.key in PAGE_STEPS:
            event.stop()
            form.turn_page(event.key)
            return
        if event.key == "enter" and not is_pasted:
            event.stop()
            event.prevent_default()
            form.end_field(self)
            return
        await super()._on_key(event)


class Form(Value):
    """What a form shows. ``refusal``: why it was refused with these texts before. ``losses``: what END sets aside."""

    offer: Offer
    texts: tuple[str, ...] = ()
    refusal: str = ""
    losses: tuple[str, ...] = ()


class FormDialog(PictureDialog):
    """The blanks of an action. Its result: whether it was sent, with the texts; an unsent form is kept as a draft."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form
        self._offer = form.offer
        self._is_end = self._offer.action_class is ActionClass.END
        labels = [blank.label + (" (may stay empty)" if blank.is_optional else "") for blank in self._offer.blanks]
        self._labels = labels + [f"type {self._offer.subject} to go on"] * self._is_end
        self._problem = form.refusal

    def compose(self) -> ComposeResult:
        """Yield the text to read, each blank with its label, and what will happen."""
        with VerticalScroll(id="box", can_focus=False):
            yield RowList("intro")
            for number, _ in enumerate(self._labels):
                blank = self._offer.blanks[number] if number < len(self._offer.blanks) else None
                text = self._form.texts[number] if number < len(self._form.texts) else blank.text if blank else ""
                yield RowList(f"label-{number}")
                yield Field(text if blank else "", number)
            yield RowList("outro")

    def on_mount(self) -> None:
        """Begin in the first field, at the end of its text."""
        first = self._fields()[0]
        first.focus()
        first.move_cursor(first.document.end)

    def draw_parts(self) -> None:
        """Show the texts around the fields."""
        offer, width = self._offer, self.app.size.width
        title = f"{offer.name}{f': {offer.subject}' if offer.subject else ''}"
        self.show_part("intro", [make_rule(title, width - _MARGIN), *_text_lines(offer.intro, Tone.PLAIN)])
        for number, label in enumerate(self._labels):
            self.show_part(f"label-{number}", _text_lines((label,), Tone.BOLD))
        rest = [*_text_lines(self._form.losses, Tone.YELLOW), *_text_lines(filter(None, (offer.effect,)), Tone.PLAIN)]
        problem = _text_lines(filter(None, (self._problem,)), Tone.RED)
        command = _preview_lines(shlex.join(command_of(offer, self.texts)), max(8, width - _MARGIN))
        keys = Line((Span(f"  {self._describe_enter()}  esc keeps the text", Tone.DIM),))
        self.show_part("outro", [*rest, *command, *problem, keys])

    def _describe_enter(self) -> str:
        """Return what Enter does in the last field, and what has to follow."""
        if self._offer.name is ActionName.COMMENT:
            return "enter keeps it for your rejection"
        last = "sends" if self._offer.action_class is ActionClass.SAY else "asks once more, then y does it"
        return f"enter goes on, and {last}" if len(self._labels) > 1 else f"enter {last}"

    def _fields(self) -> list[Field]:
        return list(self.query(Field))

    @property
    def texts(self) -> tuple[str, ...]:
        """What was typed into the blanks."""
        return tuple(field.text for field in self._fields()[: len(self._offer.blanks)])

    def on_text_area_changed(self) -> None:
        """Show the command as it is now."""
        self.draw_parts()

    def end_field(self, field: Field) -> None:
        """Go to the next field; from the last one, send the form if it is complete."""
        fields = self._fields()
        number = fields.index(field)
        if number + 1 < len(fields):
            fields[number + 1].focus()
            return
        empty = next((number for number, blank in enumerate(self._offer.blanks) if self._lacks(number)), None)
        if empty is not None:
            self._problem = f"empty: {self._labels[empty]}"
            fields[empty].focus()
        elif self._is_end and field.text.strip() != self._offer.subject:
            self._problem = f"not {self._offer.subject}: nothing was done"
        else:
            self.close((True, self.texts))
            return
        self.draw_parts()

    def _lacks(self, number: int) -> bool:
        return not self._offer.blanks[number].is_optional and not self.texts[number].strip()

    def on_key(self, event: events.Key) -> None:
        """Close the form, which stays a draft."""
        if event.key == "escape":
            event.stop()
            self.close((False, self.texts))


class ConfirmDialog(PictureDialog):
    """What will happen. `y` does it; any other key does not."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form

    def compose(self) -> ComposeResult:
        """Yield one text."""
        with VerticalScroll(id="box", can_focus=False):
            yield RowList("question")

    def draw_parts(self) -> None:
        """Show the effect, the command, and what is lost."""
        offer = self._form.offer
        command = shlex.join(command_of(offer, self._form.texts))
        is_read = offer.name in (ActionName.RUN, ActionName.RESUME)
        lines = [
            make_rule(f"{offer.name}{f': {offer.subject}' if offer.subject else ''}", self.app.size.width - _MARGIN),
            Line((Span("  y does it; any other key does not", Tone.BOLD),)),
            *(_text_lines(offer.intro, Tone.PLAIN) if is_read else ()),
            *_text_lines(filter(None, (offer.effect,)), Tone.PLAIN),
            *_text_lines(self._form.losses, Tone.YELLOW),
            *_text_lines((command,), Tone.DIM),
        ]
        self.show_part("question", lines)

    def on_key(self, event: events.Key) -> None:
        """Take the answer, or scroll."""
        event.stop()
        if event.key in PAGE_STEPS:
            self.turn_page(event.key)
        else:
            self.close(event.key == "y")


def _wrap(line: Line, width: int) -> Iterator[Line]:
    """Yield a line of one tone, broken between words; a word that is too long is broken, too."""
    if cell_width(line.text) <= width:
        yield line
        return
    for row in wrap_text(line.text, width, 2).split("\n"):
        yield from wrap_line(Line((Span(row, line.spans[0].tone),)), width)


_PREVIEW_ROWS = 2


def _preview_lines(command: str, width: int) -> list[Line]:
    """Return a command that is still being typed, in few rows; it is confirmed as a whole."""
    shown = cut(f"  {clean(command.replace(chr(10), '⏎'))}", _PREVIEW_ROWS * width - 1)
    return list(wrap_line(Line((Span(shown, Tone.DIM),)), width))[:_PREVIEW_ROWS]


def _text_lines(texts: Iterable[str], tone: Tone) -> list[Line]:
    """Return texts of agents and people as lines: each line break is kept, and nothing is cut."""
    return [Line((Span(f"  {clean(row)}", tone),)) for text in texts for row in text.splitlines() or [""]]
