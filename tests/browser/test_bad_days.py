"""The page on bad days: a server that stops or restarts, and texts that would be markup elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect

from tests.browser.conftest import Visit
from tests.browser.measuring import list_scrolled_sideways, unfold
from tests.browser.shops import Web, at_example_time, open_shop, running_web
from tests.browser.test_pages import PAGES

NO_NEWS = "no news"


@pytest.fixture
def own_shop(browser: Browser, tmp_path: Path) -> Iterator[Web]:
    """A crew and a server for each of these tests: they stop one, or spoil the other."""
    root = tmp_path / "shop"
    with open_shop(root), running_web(root, command=at_example_time()) as web:
        yield web


@pytest.mark.campaign
def test_a_frozen_server_is_named_within_20_seconds(own_shop: Web, visit: Visit) -> None:
    page = visit(own_shop).log_in().page
    fresh = page.get_by_role("status").last
    os.kill(own_shop.pid, signal.SIGSTOP)
    try:
        expect(fresh).to_contain_text(NO_NEWS, timeout=20_000)
        expect(page.locator("#waits")).to_contain_text("vat-rates")
    finally:
        os.kill(own_shop.pid, signal.SIGCONT)
    expect(fresh).not_to_contain_text(NO_NEWS)
    own_shop.describe("Print the invoice after the pause.")
    expect(page.locator("#work")).to_contain_text("after the pause")


@pytest.mark.campaign
def test_the_page_comes_back_to_a_restarted_server(own_shop: Web, visit: Visit) -> None:
    visitor = visit(own_shop).log_in()
    visitor.may_complain = True  # of refused connections
    fresh = visitor.page.get_by_role("status").last
    own_shop.terminal.process.terminate()
    own_shop.terminal.process.wait(30)
    expect(fresh).to_contain_text(NO_NEWS)
    with running_web(own_shop.root, own_shop.port, at_example_time()) as again:
        expect(fresh).not_to_contain_text(NO_NEWS)
        again.describe("Print the invoice after the restart.")
        expect(visitor.page.locator("#work")).to_contain_text("after the restart")


SHOWN = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\"> {{ 1234567 * 9 }}"
HOSTILE = f"{SHOWN} {{% raw %}} '\"><b>bold</b> </textarea></pre> \u202ereversed\u2066 \x1b[31mred\x07 {'x' * 10_000}"


@pytest.mark.campaign
def test_hostile_texts_are_shown_as_text_in_every_field(own_shop: Web, visit: Visit) -> None:
    fields = dict.fromkeys(("description", "done_when", "scope", "spec_ref"), HOSTILE)
    for task_id in ("invoice-pdf", "invoice-mail", "payment-terms", "invoice-numbers"):
        own_shop.change_task(task_id, **fields)
    own_shop.change_task("vat-rates", **fields, blocked_reason=HOSTILE, blocked_questions=(HOSTILE, HOSTILE))
    visitor = visit(own_shop).log_in()
    for path in (*PAGES.values(), "/tasks/vat-rates", "/tasks/invoice-pdf"):
        page = visitor.open(path)
        unfold(page)
        assert "taken" not in page.title()
        assert set(list_scrolled_sideways(page)) <= {"div.diff"}, path
        expect(page.locator("main b", has_text="bold")).to_have_count(0)
        expect(page.locator("main")).not_to_contain_text("11111103")
    for path in ("/", "/board", "/tasks/vat-rates"):
        expect(visitor.open(path).locator("main")).to_contain_text(SHOWN)
