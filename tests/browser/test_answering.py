"""A person answers a question on the page: on a phone, in two tabs, without script, while the board changes."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Visit
from tests.browser.shops import Web

QUESTION = "vat-rates"
ANSWER = "8.1 % for Switzerland, 25 % for Norway"


def find_question(page: Page) -> Locator:
    """The card of the question that waits."""
    return page.locator("#waits article", has_text=QUESTION).filter(has=page.locator("form"))


def write_answer(page: Page) -> None:
    """Write an answer for each question, as far as before it is sent."""
    for field in find_question(page).locator("textarea").all():
        field.fill(ANSWER)


def send_answer(page: Page) -> None:
    find_question(page).get_by_role("button", name="Answer").click()


def test_login_takes_the_code_out_of_the_address(shop: Web, visit: Visit) -> None:
    visitor = visit(shop)
    visitor.page.goto(shop.take_address())
    expect(visitor.page.locator("#waits")).to_be_visible()
    assert visitor.page.url == f"{shop.origin}/"


def test_a_half_typed_answer_survives_twenty_changes_of_the_board(own_shop: Web, visit: Visit) -> None:
    page = visit(own_shop).log_in().page
    field = find_question(page).locator("textarea").first
    field.press_sequentially("8.1 % for")
    for number in range(20):
        own_shop.describe(f"Print the invoice, change {number}.")
        expect(page.locator("#work")).to_contain_text(f"change {number}.")
    own_shop.change_task(QUESTION, blocked_reason="the shop sells to six countries")
    field.press_sequentially(" Switzerland")
    own_shop.describe("Print the invoice, the last change.")
    expect(page.locator("#work")).to_contain_text("the last change.")
    expect(field).to_have_value("8.1 % for Switzerland")
    expect(field).to_be_focused()
