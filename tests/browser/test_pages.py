"""Each screen of the page on a phone and on a wide screen: it fits, it can be read and touched, it asks nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect

from tests.browser.measuring import (
    list_close_buttons,
    list_faults,
    list_scrolled_sideways,
    list_small_targets,
    unfold,
    walk_with_tab,
)
from tests.browser.shops import Web
from tests.browser.visitors import Visitor
from tests.conftest import variant

PAGES = {
    "now": "/",
    "board": "/board",
    "agents": "/agents",
    "session": "/sessions/coder-1",
    "queue": "/queue",
    "costs": "/costs",
    "history": "/history",
    "task": "/tasks/invoice-mail",
}
ALIKE = ("agents", "queue", "history")
"""Pages made of the same parts as the others: the campaigns look at them."""
WIDTHS = {360: 740, 1280: 900}
"""Width and height of the windows."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
Reader = Callable[[int], Visitor]


@pytest.fixture(scope="module")
def reader(browser: Browser, shop: Web) -> Iterator[Reader]:
    """Return a visitor with a window of a width, who has logged in."""
    visitors: dict[int, Visitor] = {}

    def find_reader(width: int) -> Visitor:
        if width not in visitors:
            visitors[width] = Visitor(browser, shop, viewport={"width": width, "height": WIDTHS[width]}).log_in()
        return visitors[width]

    yield find_reader
    for visitor in visitors.values():
        visitor.context.close()


@pytest.mark.parametrize("width", [360, variant(1280)])
@pytest.mark.parametrize("name", [variant(name) if name in ALIKE else name for name in PAGES])
def test_each_page_fits_and_has_names_headings_and_contrast(reader: Reader, name: str, width: int) -> None:
    visitor = reader(width)
    page = visitor.page
    answer = page.goto(visitor.web.origin + PAGES[name])
    assert answer is not None
    assert answer.headers["content-security-policy"] == POLICY
    unfold(page)
    assert list_faults(page) == []
    assert set(list_scrolled_sideways(page)) <= {"div.diff"}
    if width == 360:
        assert list_small_targets(page) == []
        assert list_close_buttons(page) == []
    assert visitor.complaints == []
    assert visitor.strange_requests == []


@pytest.mark.campaign
@pytest.mark.parametrize("link", ["Comment on these lines", "Drop the task"])
def test_a_form_behind_a_link_fits_a_phone(reader: Reader, link: str) -> None:
    page = reader(360).open(PAGES["task"])
    unfold(page)
    page.get_by_role("link", name=link).last.click()
    expect(page.get_by_role("textbox").first).to_be_visible()
    assert list_faults(page) == []
    assert set(list_scrolled_sideways(page)) <= {"div.diff"}
    assert list_small_targets(page) == []
    assert list_close_buttons(page) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_picture_of_each_page_is_written(reader: Reader, pictures: Path, name: str, width: int) -> None:
    page = reader(width).open(PAGES[name])
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("name", ["now", *map(variant, sorted(PAGES.keys() - {"now"}))])
def test_the_tab_key_reaches_everything_in_its_order(reader: Reader, name: str) -> None:
    page = reader(360).open(PAGES[name])
    unfold(page)
    order, count = walk_with_tab(page)
    assert order == list(range(count))


def test_the_login_page_fits_and_can_be_read(browser: Browser, shop: Web) -> None:
    visitor = Visitor(browser, shop)
    page = visitor.open("/login")
    assert list_faults(page) == []
    assert list_scrolled_sideways(page) == []
    assert list_small_targets(page) == []
    visitor.context.close()
    assert visitor.complaints == []
