"""A browser for all tests of this directory, a `liza web` for those that only look, and one for each that changes."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.shops import Web, at_example_time, open_shop, running_web
from tests.conftest import set_world
from tests.tools import Tools

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.visitors import Visitor

Visit = Callable[..., "Visitor"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", type=Path, metavar="DIR", help="write a picture of each page")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that write pictures, if none are wanted."""
    if config.getoption("--pictures", default=None) is None:
        left_out = [item for item in items if "pictures" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def pictures(request: pytest.FixtureRequest) -> Path:
    """The directory for pictures."""
    directory: Path = request.config.getoption("--pictures")
    return directory


@pytest.fixture(scope="session")
def session_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The world of the browser, and of the crew that tests only look at."""
    with pytest.MonkeyPatch.context() as patch:
        set_world(tmp_path_factory.mktemp("home"), patch)
        yield


class _Playwright:
    """The event loop of Playwright, which begins with the first test that needs a browser and lasts to the end."""

    loop: asyncio.AbstractEventLoop | None = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Show the loop of Playwright to the tests of this directory only: beside it, `asyncio.run` refuses to start."""
    if not item.path.is_relative_to(Path(__file__).parent):
        return (yield)
    asyncio._set_running_loop(_Playwright.loop)
    try:
        return (yield)
    finally:
        _Playwright.loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def browser(_tools: Tools, session_world: None) -> Iterator[Browser]:
    """The chromium of this machine. Those that Playwright would download cannot be had everywhere."""
    path = _tools.require(["browser"])
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("browser", path=path)
    with sync_api.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=program, env={**os.environ, "PATH": path})
        yield launched
        if asyncio._get_running_loop() is None:  # another directory had the last test
            asyncio._set_running_loop(_Playwright.loop)
        launched.close()


@pytest.fixture(scope="session")
def shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """`liza web` in a crew that tests only look at."""
    root = tmp_path_factory.mktemp("looked-at") / "shop"
    with open_shop(root), running_web(root, command=at_example_time()) as web:
        yield web


@pytest.fixture(scope="module")
def own_shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """`liza web` in a crew that the tests of one module change: each asks about a task of its own."""
    root = tmp_path_factory.mktemp("changed") / "shop"
    with open_shop(root), running_web(root, command=at_example_time()) as web:
        yield web


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Return a visitor of a page. At the end, no browser has complained, and none has asked another server."""
    from tests.browser.visitors import Visitor

    visitors: list[Visitor] = []

    with ExitStack() as contexts:

        def begin(web: Web, **options: Any) -> Visitor:
            visitor = Visitor(browser, web, **options)
            contexts.callback(visitor.context.close)
            visitors.append(visitor)
            return visitor

        yield begin
    for visitor in visitors:
        assert visitor.complaints == [] or visitor.may_complain
        assert visitor.strange_requests == []
