"""Draw the coloured output of a command as SVG, and read it back. Rich draws; its text can be selected."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BLACK, WHITE = (13, 17, 23), (214, 219, 227)
_UNUSED = [BLACK] * 8
"""The first colours of a terminal: Liza uses none of them."""
THEMES = {"dark": TerminalTheme(BLACK, WHITE, _UNUSED), "light": TerminalTheme((255, 255, 255), BLACK, _UNUSED)}
SVG_FORM = f"""\
<svg class="rich-terminal" viewBox="0 0 {{width}} {{height}}" xmlns="http://www.w3.org/2000/svg">
<style>
.{{unique_id}}-matrix {{{{ font: {{char_height}}px {FONT}; line-height: {{line_height}}px; }}}}
.{{unique_id}}-matrix text {{{{ white-space: pre; }}}}
.{{unique_id}}-title {{{{ font: bold 18px {FONT}; fill: #767676; }}}}
{{styles}}
</style>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})">
{{backgrounds}}
<g class="{{unique_id}}-matrix" xml:space="preserve">
{{matrix}}
</g>
</g>
</svg>
"""
SVG = "{http://www.w3.org/2000/svg}"
Runs = list[tuple[str, str]]


def draw(name: str, title: str, output: str, width: int, theme: str) -> str:
    """Return a picture of a dark or light terminal with the output, which has the escape sequences of colours."""
    console = Console(record=True, file=io.StringIO(), width=width, color_system="256")
    for line in Text.from_ansi(output).split("\n", allow_blank=True):
        # A terminal breaks a line that is too long at its edge.
        for start in range(0, max(len(line), 1), width):
            console.print(line[start : start + width], no_wrap=True, highlight=False)
    svg = console.export_svg(title=title, theme=THEMES[theme], code_format=SVG_FORM, unique_id=f"liza-{name}")
    # Rich clips each line of text: no line is longer than the terminal here. A copied command needs real blanks.
    return re.sub(r' clip-path="url\(#[\w-]+-line-\d+\)"', "", svg).replace("&#160;", " ").rstrip() + "\n"


def read_runs(svg: str) -> Runs:
    """Return each piece of text of a picture, in order, with the style that it is drawn in.

    Coordinates and names of classes are left out: another version of Rich may choose others.
    """
    root = ElementTree.fromstring(svg)
    style = "".join(element.text or "" for element in root.iter(f"{SVG}style"))
    rules = dict(re.findall(r"\.([\w-]+-r\d+) \{([^}]*)\}", style))
    return [
        ((element.text or "").rstrip("\n"), rules.get(element.get("class", ""), "").strip())
        for element in root.iter(f"{SVG}text")
    ]
