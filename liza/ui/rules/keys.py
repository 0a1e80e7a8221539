"""The keys of the picture as data: footer, help and bindings are made of this table.

No Ctrl, Alt or function keys: tmux, screen, browsers and phones take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.model.value_classes import Value
from liza.ui.rules.picture_view import FILTERED
from liza.ui.rules.snapshot import ScreenName

SCREEN_KEYS: Final = {str(number): screen for number, screen in enumerate(list(ScreenName)[:6], 1)}
"""The digit of each screen."""


class Key(Value):
    """A key: the names that textual gives its presses, the word for the footer, and what it does, for the help.

    ``command``: name of the method of the app, ``press_…``. ``screens``: where it does something; empty: everywhere.
    ``changes``: it changes the board, so a read-only picture has no such key. ``in_footer``: shown in the footer.
    """

    presses: tuple[str, ...]
    shown: str
    word: str
    help: str
    command: str
    screens: tuple[ScreenName, ...] = ()
    changes: bool = False
    in_footer: bool = False


KEYS: Final = (
    Key(("enter",), "enter", "open", "open the task or the session under the cursor", "open", in_footer=True),
    Key(("tab",), "tab", "next screen", "next screen", "next_screen"),
    Key(("shift+tab",), "shift+tab", "previous screen", "previous screen", "previous_screen"),
    Key(("escape",), "esc", "back", "end the filter; else back to the screen before", "back"),
    Key(("j", "down"), "j ↓", "down", "move down", "down"),
    Key(("k", "up"), "k ↑", "up", "move up", "up"),
    Key(("pagedown", "space"), "PgDn", "page down", "a page down", "page_down"),
    Key(("pageup",), "PgUp", "page up", "a page up", "page_up"),
    Key(("g", "home"), "g", "first", "to the first line", "first"),
    Key(("G", "end"), "G", "last", "to the last line", "last"),
    Key(("m",), "m", "merged", "show or fold the merged tasks", "merged"),
    Key(("X",), "X", "given up", "show or hide the tasks that were given up", "given_up"),
    Key(("slash",), "/", "find", "list only tasks and agents with a text", "find", FILTERED, in_footer=True),
    Key(("f",), "f", "filter", "list only some statuses, or the tasks of an agent", "filter", FILTERED),
    Key(("n",), "n", "next wait", "to the next line that waits for you", "next_wait"),
    Key(("N",), "N", "previous wait", "to the line before that waits for you", "previous_wait"),
    Key(("a",), "a", "answer", "answer what is asked, or do what waits", "answer", changes=True, in_footer=True),
    Key(("x",), "x", "actions", "all that can be done with it", "menu", changes=True, in_footer=True),
    Key(("d",), "d", "diff", "the diff of the task", "diff"),
    Key(("l",), "l", "log", "what its agent does", "log"),
    Key(("t",), "t", "terminal", "attach to its agent's program, and come back", "attach", changes=True),
    Key(("w",), "w", "note", "leave a note for it", "note", changes=True),
    Key(("v",), "v", "mark", "mark the line for a comment", "mark", (ScreenName.TASK,), True, True),
    Key(("c",), "c", "comment", "comment on the marked lines", "comment", (ScreenName.TASK,), True, True),
    Key(("y",), "y", "copy", "copy the command for it", "copy"),
    Key(("p",), "p", "pause", "pause the crew, or let it continue", "pause", changes=True, in_footer=True),
    Key(("plus",), "+", "new task", "add a task", "add", changes=True),
    Key(("e",), "e", "edit", "edit the board in $EDITOR", "edit", changes=True),
    Key(("colon",), ":", "command", "any command of liza", "command", changes=True),
    Key(("question_mark",), "?", "keys", "all keys", "help", in_footer=True),
    Key(("q",), "q", "leave", "leave; the crew goes on", "leave", in_footer=True),
)


def keys_of(screen: ScreenName, is_read_only: bool) -> Iterator[Key]:
    """Yield the keys that do something on a screen."""
    for key in KEYS:
        if (not key.screens or screen in key.screens) and not (key.changes and is_read_only):
            yield key


def footer_keys(screen: ScreenName, is_read_only: bool) -> list[str]:
    """Return the texts of the footer."""
    return [f"{key.shown} {key.word}" for key in keys_of(screen, is_read_only) if key.in_footer]
