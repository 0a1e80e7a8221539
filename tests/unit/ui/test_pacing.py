"""Flow control: a picture waits until the terminal has shown the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("textual")

from liza.ui.terminal import pacing
from liza.ui.terminal.pacing import QUESTION, Pacing


class AppStandIn:
    """An app that notes whether its pictures are held back, and how often all of it was drawn again."""

    is_running, screen_stack = True, (None,)

    def __init__(self) -> None:
        self.holds = self.redrawn = 0
        self.screen = self

    @contextmanager
    def batch_update(self) -> Iterator[None]:
        self.holds += 1
        yield
        self.holds -= 1

    def refresh(self) -> None:
        self.redrawn += 1

    def check_idle(self) -> None:
        pass


def run(scenario: Callable[[Pacing, AppStandIn, list[str]], Any]) -> None:
    """Run a scenario with a started pacing, an app, and what was written to the terminal."""

    async def steps() -> None:
        app, written = AppStandIn(), list[str]()
        paced = Pacing(app)  # type: ignore[arg-type]
        paced.start(written.append)
        await scenario(paced, app, written)

    asyncio.run(steps())


async def wait_released(app: AppStandIn) -> None:
    async with asyncio.timeout(5):
        while app.holds:
            await asyncio.sleep(0.005)


def show(paced: Pacing) -> None:
    """Draw a picture."""
    paced.note_output()
    paced.note_picture()


def test_a_picture_holds_back_the_next_until_the_answer() -> None:
    async def scenario(paced: Pacing, app: AppStandIn, written: list[str]) -> None:
        show(paced)
        assert (app.holds, written) == (1, [QUESTION])
        paced.note_picture()
        paced.note_answer()
        await asyncio.sleep(0)
        assert (app.holds, app.redrawn) == (0, 1)

    run(scenario)


def test_a_picture_counts_as_shown_when_the_terminal_has_answered() -> None:
    async def scenario(paced: Pacing, app: AppStandIn, written: list[str]) -> None:
        shown: list[str] = []
        paced.note_output()
        paced.note_picture(lambda: shown.append("first"))
        paced.note_picture(lambda: shown.append("dropped"))
        assert shown == []
        paced.note_answer()
        await asyncio.sleep(0)
        assert shown == ["first"]

    run(scenario)


def test_a_slow_terminal_has_shown_nothing_before_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "LAST_SECONDS", 0.01)

    async def scenario(paced: Pacing, app: AppStandIn, written: list[str]) -> None:
        shown: list[str] = []
        show(paced)
        paced.note_answer()
        await asyncio.sleep(0)
        paced.note_output()
        paced.note_picture(lambda: shown.append("late"))
        await wait_released(app)
        assert shown == []
        paced.note_answer()
        await asyncio.sleep(0)
        assert shown == ["late"]

    run(scenario)


def test_without_output_the_terminal_is_asked_nothing() -> None:
    async def scenario(paced: Pacing, app: AppStandIn, written: list[str]) -> None:
        paced.note_picture()
        assert (app.holds, written) == (0, [])

    run(scenario)


def test_a_terminal_that_never_answers_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_SECONDS", 0.01)

    async def scenario(paced: Pacing, app: AppStandIn, written: list[str]) -> None:
        show(paced)
        await wait_released(app)
        show(paced)
        assert app.holds == 1

    run(scenario)


def test_an_answer_to_an_older_question_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_SECONDS", 0.01)

    async def scenario(paced: Pacing, app: AppStandIn, written: list[str]) -> None:
        show(paced)
        await wait_released(app)
        show(paced)
        paced.note_answer()
        await asyncio.sleep(0)
        assert app.holds == 1
        paced.note_answer()
        await asyncio.sleep(0)
        assert app.holds == 0

    run(scenario)
