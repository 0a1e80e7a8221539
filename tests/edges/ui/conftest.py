"""A crew with a page that the tests of a module share: starting `liza web` costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.edges.merge_crew import Merges, copied
from tests.edges.ui.page_browser import PageBrowser, opened

_numbers = count(1)


class PageCrew(NamedTuple):
    """A crew, a browser that is logged in at its page, and a task and an agent of this test."""

    crew: Merges
    browser: PageBrowser
    task: str
    agent: str

    @property
    def path(self) -> str:
        """The page of the task."""
        return f"/tasks/{self.task}"


@pytest.fixture(scope="module")
def shared_crew(
    made: Path, module_world: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Merges, PageBrowser]]:
    crew = copied(made, tmp_path_factory.mktemp("shared"))
    with opened(crew.root) as browser:
        yield crew, browser


@pytest.fixture
def desk(shared_crew: tuple[Merges, PageBrowser]) -> PageCrew:
    """A person at the page."""
    number = next(_numbers)
    return PageCrew(*shared_crew, f"task-{number}", f"coder-{number}")
