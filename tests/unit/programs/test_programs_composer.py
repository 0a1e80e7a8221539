"""Whether the line where one types is empty, on screens as the real programs drew them."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model.paths import Paths
from liza.programs.presets import preset_table
from liza.programs.presets.preset import Preset
from liza.programs.terminal import keyboard
from liza.programs.terminal.keyboard import InputLine
from liza.programs.terminal.screens import Screen

RULE = "─" * 100
BAR = " " * 60 + "┃"
FOOT = " " * 60 + "╹" + "▀" * 75
# What stands above the line, the line while nobody has typed, how each line of a text stands in it, and below it.
DRAWN = {
    "claude": (
        ["❯ an earlier prompt", "● An answer", RULE],
        ["❯\u00a0"],
        ["❯ {}", "  {}"],
        [RULE, "  ⏵⏵ accept edits on"],
    ),
    "codex": (
        ["› an earlier prompt", "• An answer", ""],
        ["› Ask Codex to do anything"],
        ["› {}", "  {}"],
        ["", "  scripted-model default · /home/ann/shop", "  ? for shortcuts"],
    ),
    "gemini": (
        [" > an earlier prompt", "✦ An answer", "▀" * 100],
        [" >   Type your message or @path/to/file"],
        [" > {}", "   {}"],
        ["▄" * 100, " workspace (/directory)     branch"],
    ),
    "qwen": (
        ["  > an earlier prompt", "  ✦ An answer", RULE],
        ["*   Type your message or @path/to/file"],
        ["> {}", "  {}"],
        [RULE, "  YOLO mode (shift + tab to cycle)"],
    ),
    "copilot": (["❯ an earlier prompt", " /home/ann/shop", RULE], ["❯"], ["❯ {}", "  {}"], [RULE, " ● Working"]),
    "pi": (["an earlier prompt", RULE, "⠴ Working...", RULE], [""], ["{}", "{}"], [RULE, "/home/ann/shop (main)"]),
    "vibe": (
        ["> an earlier prompt", RULE, "", RULE + " accept edits"],
        [">", "", ""],
        ["> {}", "  {}"],
        [RULE, "/home"],
    ),
    "opencode": (
        ["  ┃", "  ┃  an earlier prompt", "  ┃", "", BAR],
        [BAR + '  Ask anything… "Fix a TODO in the codebase"'],
        [BAR + "  {}", BAR + "  {}"],
        [BAR, BAR + "  Build · Scripted scripted", FOOT],
    ),
}


def row(name: str) -> Preset:
    return preset_table.load_presets(Paths(Path("/nowhere"))).rows[name]


@pytest.mark.parametrize("name", DRAWN)
def test_a_real_programs_empty_or_begun_line_is_recognized(name: str) -> None:
    above, empty, typed, below = DRAWN[name]
    preset = row(name)

    def found(*lines: str) -> InputLine:
        # The cursor is parked in a corner: some programs draw one of their own.
        return keyboard.classify_line(Screen((*above, *lines, *below, "", "")), preset, "go on")

    assert found(*empty) is InputLine.EMPTY
    assert found(typed[0].format("half of a line")) is InputLine.BEGUN
    assert found(typed[0].format("half of"), typed[1].format("a line")) is InputLine.BEGUN
    assert found(typed[0].format("go on")) is InputLine.EMPTY, "what an earlier try left there"
    assert keyboard.classify_line(Screen(tuple(above[:1])), preset) is not InputLine.EMPTY, "an earlier prompt"
    assert keyboard.classify_line(Screen(("loading",)), preset) is InputLine.UNKNOWN
    assert keyboard.is_described(preset)


def test_figures_right_of_the_line_in_wide_terminals_are_ignored() -> None:
    figures = " " * 70 + "$0.00 spent"
    lines = ("", "  ┃", "  ┃" + figures, "  ┃" + figures, "  ┃  Build auto · Scripted" + figures, "  ╹" + "▀" * 99)
    assert keyboard.classify_line(Screen(lines), row("opencode")) is InputLine.EMPTY
    begun = (*lines[:2], "  ┃  half of a line" + figures, *lines[3:])
    assert keyboard.classify_line(Screen(begun), row("opencode")) is InputLine.BEGUN
