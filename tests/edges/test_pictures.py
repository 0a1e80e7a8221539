"""The pictures of the README are what the commands print now. After a change: ``python -m tests.pictures``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.crew.crew import Crew
from tests.pictures.drawing import draw, read_runs
from tests.pictures.example_crew import DIRECTORY, PICTURES, ROOT, TITLES, WIDTH, open_example

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
MAX_SIZE = 24 << 10


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    time.tzset()
    with open_example(tmp_path / "shop") as crew:
        yield crew


def test_each_picture_is_what_its_command_prints_now_in_text_and_in_colours(crew: Crew) -> None:
    for name, print_output in PICTURES.items():
        drawn = draw(name, TITLES[name], print_output(crew), WIDTH)
        kept = (DIRECTORY / f"{name}.svg").read_text(encoding="utf-8")
        assert read_runs(kept) == read_runs(drawn), "write the pictures again: python -m tests.pictures"


def test_the_text_of_a_picture_can_be_copied_and_has_nothing_of_the_machine(crew: Crew, tmp_path: Path) -> None:
    for name, print_output in PICTURES.items():
        output = ESCAPE.sub("", print_output(crew))
        copied = "".join(text for text, _ in read_runs((DIRECTORY / f"{name}.svg").read_text(encoding="utf-8")))
        assert "".join(copied.split()) == "".join((TITLES[name] + output).split())
        assert not [path for path in (tmp_path, ROOT, Path.home()) if str(path) in copied]


def test_pictures_are_small_show_colours_and_are_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in DIRECTORY.glob("*.svg")} == set(PICTURES)
    for name in PICTURES:
        path = DIRECTORY / f"{name}.svg"
        assert path.stat().st_size < MAX_SIZE
        assert len({style for _, style in read_runs(path.read_text(encoding="utf-8"))}) > 2
        assert f"](specs/pictures/{name}.svg)" in readme


def test_a_line_that_is_too_long_goes_on_at_the_edge_and_keeps_its_colour() -> None:
    runs = [
        (text, style) for text, style in read_runs(draw("x", "x", "\x1b[31mabcdefghij\x1b[0m klm", 8)) if text.strip()
    ]
    assert [text.strip() for text, _ in runs] == ["x", "abcdefgh", "ij", "klm"]
    assert runs[1][1] == runs[2][1] != runs[3][1]
