"""`liza demo` with the page and the picture open: both show the numbers of `liza status` at each revision."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from liza.crew.crew import Crew, find_crew
from liza.view.status import status as read_status
from tests.edges.ui.page_browser import PageBrowser, opened
from tests.journeys.test_demo import BIN, clean
from tests.terminal_stand_in import TerminalStandIn

LIMIT = 400.0
SETTLE = 5.0
"""Seconds in which the page and the picture show a revision, also on a busy machine."""


class Numbers(NamedTuple):
    revision: int | None
    waits: int
    merged: int
    total: int


def numbers_of_status(crew: Crew) -> Numbers:
    """The numbers of `liza status --json`, made in this process: the command needs longer than most revisions last."""
    status = read_status(crew).fields()
    words = [task["status"] for task in status["tasks"]]
    over = sum(word in ("SUPERSEDED", "ABANDONED") for word in words)
    return Numbers(status["revision"], status["waits"], words.count("MERGED"), len(words) - over)


def numbers_of_page(browser: PageBrowser) -> Numbers:
    html = browser.load("/").text
    revision, counts = re.search(r'data-revision="(\d+)"', html), re.search(r"(\d+)/(\d+) merged", html)
    waits = re.search(r"<title>\((\d+)\)", html)
    assert revision, html
    assert counts, html
    assert waits, html
    return Numbers(int(revision[1]), int(waits[1]), int(counts[1]), int(counts[2]))


def numbers_of_picture(terminal: TerminalStandIn) -> Numbers | None:
    """The picture does not say its revision."""
    waits, counts = (re.search(pattern, terminal.text) for pattern in (r"(\d+) waits? for you", r"(\d+)/(\d+) merged"))
    return Numbers(None, int(waits[1]), int(counts[1]), int(counts[2])) if waits and counts else None


@pytest.mark.campaign
def test_page_and_picture_show_the_numbers_of_status_at_each_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path / "home", tmp_path / "shop"
    home.mkdir()
    env = clean(home)
    monkeypatch.setenv("HOME", str(home))
    with (tmp_path / "out").open("w") as out:
        demo = subprocess.Popen(
            [BIN / "liza", "demo", root], env=env, cwd=tmp_path, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    while not (root / ".liza" / "state.yaml").exists():
        assert demo.poll() is None, (tmp_path / "out").read_text()
    crew, compared = find_crew(root), dict[int, list[str]]()
    with opened(root) as browser, TerminalStandIn([BIN / "liza", "ui"], root, env=env) as picture:
        picture.wait_for_text("merged", 30)
        while demo.poll() is None:
            _compare(crew, browser, picture, compared)
    assert demo.returncode == 0, (tmp_path / "out").read_text()
    print(f"{len(compared)} revisions were compared")
    assert len(compared) >= 10, compared
    assert {revision: rows for revision, rows in compared.items() if rows} == {}


def _compare(crew: Crew, browser: PageBrowser, picture: TerminalStandIn, compared: dict[int, list[str]]) -> None:
    """Note what differs at a revision, unless the board moves on while it is looked at."""
    expected: Numbers | None = None
    page: Numbers | None = None
    drawn: Numbers | None = None

    def is_decided() -> bool:
        nonlocal expected, page, drawn
        before = numbers_of_status(crew)
        page, drawn = numbers_of_page(browser), numbers_of_picture(picture)
        expected = numbers_of_status(crew)
        return before != expected or (page == expected and drawn == expected._replace(revision=None))

    try:
        picture.wait_for(is_decided, SETTLE)
    except AssertionError:
        assert expected is not None
        compared.setdefault(expected.revision or 0, []).append(f"{expected}, page {page}, picture {drawn}")
        return
    if page == expected and drawn == expected._replace(revision=None):
        compared.setdefault(expected.revision or 0, [])
