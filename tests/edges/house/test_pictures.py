"""The pictures in the documents are what the commands print now. After a change: ``python -m tests.pictures``."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.pictures.drawing import THEMES, draw, read_runs
from tests.pictures.example_crew import DIRECTORY, ROOT, draw_pictures
from tests.unit.contrast import contrast

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
Pictures = list[tuple[str, str, str, str]]
MAX_SIZE = 40 << 10


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    time.tzset()
    return list(draw_pictures(tmp_path))


def test_each_picture_is_what_its_command_prints_now(pictures: Pictures) -> None:
    for name, drawn, _, _ in pictures:
        kept = (DIRECTORY / f"{name}.svg").read_text(encoding="utf-8")
        assert read_runs(kept) == read_runs(drawn), "write the pictures again: python -m tests.pictures"


def test_a_pictures_text_can_be_copied_and_names_no_machine(pictures: Pictures, tmp_path: Path) -> None:
    for name, _, title, output in pictures:
        copied = "".join(text for text, _ in read_runs((DIRECTORY / f"{name}.svg").read_text(encoding="utf-8")))
        assert "".join(copied.split()) == "".join((title + ESCAPE.sub("", output)).split())
        assert not [path for path in (tmp_path, ROOT, Path.home()) if str(path) in copied]


def test_pictures_are_small_and_each_is_in_the_documents(pictures: Pictures) -> None:
    readme, screens = (ROOT / "README.md").read_text(), (ROOT / "specs" / "screens.md").read_text()
    names = [name for name, _, _, _ in pictures]
    assert {path.stem for path in DIRECTORY.glob("*.svg")} == set(names)
    for name in names:
        assert (DIRECTORY / f"{name}.svg").stat().st_size < MAX_SIZE
        assert f"](pictures/{name}.svg)" in screens
    assert len(re.findall(r"]\(specs/pictures/ui-now-80-dark\.svg\)", readme)) == 1
    assert len(re.findall(r"]\(specs/pictures/[a-z-]+-120-dark\.svg\)", readme)) == 1


def test_a_picture_has_no_text_of_weak_contrast(pictures: Pictures) -> None:
    for name, drawn, _, _ in pictures:
        ground = THEMES[name.rpartition("-")[2]].background_color
        fills = {fill for _, style in read_runs(drawn) for fill in re.findall(r"fill: #([0-9a-f]{6})", style)}
        for fill in fills:
            colour = tuple(bytes.fromhex(fill))
            assert contrast(colour, ground) >= 3.4, (name, fill)


def test_a_long_line_is_wrapped_and_keeps_its_colour() -> None:
    runs = [
        (text, style)
        for text, style in read_runs(draw("x", "x", "\x1b[38;5;161mabcdefghij\x1b[0m klm", 8, "dark"))
        if text.strip()
    ]
    assert [text.strip() for text, _ in runs] == ["x", "abcdefgh", "ij", "klm"]
    assert runs[1][1] == runs[2][1] != runs[3][1]
