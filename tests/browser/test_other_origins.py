"""A page of another origin, in the same browser, sends what the person's page would send."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

from liza.model.statuses import Status
from tests.browser.conftest import Visit
from tests.browser.shops import Web

pytestmark = pytest.mark.campaign

TASK = "vat-rates"
_FETCH = """\
async (body, address) => {
  const form = new URLSearchParams(new FormData(document.querySelector("form")));
  const send = { method: "POST", mode: "no-cors", credentials: "include", body: form };
  await fetch(`${address}/do`, send).catch(() => null);
  return fetch(address, { credentials: "include" }).then((answer) => answer.text(), () => "");
}
"""
"""Send the form of the page by script, then read the person's page."""


def write_attack(address: str, fields: Sequence[tuple[str, str]]) -> str:
    """Return a page with the form that answers the question, and a frame with the person's page."""
    inputs = "".join(f'<input name="{html.escape(name)}" value="{html.escape(value)}">' for name, value in fields)
    form = f'<form method="post" action="{address}/do">{inputs}<button>Win a prize</button></form>'
    return f'<!doctype html><title>Prize</title>{form}<iframe src="{address}/" title="prize"></iframe>'


@pytest.mark.parametrize("origin", ["http://127.0.0.1:9", "http://shop.example"], ids=["another port", "another site"])
def test_a_page_of_another_origin_changes_and_reads_nothing(own_shop: Web, visit: Visit, origin: str) -> None:
    visitor = visit(own_shop).log_in()
    form = visitor.page.locator("#waits article", has_text=TASK).locator("form")
    fields = form.locator("input[type=hidden]").evaluate_all("(all) => all.map((field) => [field.name, field.value])")
    attack = write_attack(own_shop.origin, [*fields, ("text", "yes"), ("text", "yes")])
    visitor.context.route(f"{origin}/**", lambda route: route.fulfill(body=attack, content_type="text/html"))
    visitor.may_complain = True
    page = visitor.page
    page.goto(f"{origin}/prize")
    expect(page.frame_locator("iframe").locator("#waits")).to_have_count(0)
    assert page.locator("body").evaluate(_FETCH, own_shop.origin) == ""
    with page.expect_response(f"{own_shop.origin}/do") as sent:
        page.get_by_role("button", name="Win a prize").click()
    assert sent.value.status in (401, 403)
    visitor.strange_requests.clear()
    assert own_shop.board.read().task(TASK).status is Status.BLOCKED


def test_a_link_in_a_mail_of_another_site_opens_the_page(shop: Web, visit: Visit) -> None:
    """The browser sends no cookie with what another site opens."""
    visitor = visit(shop).log_in()
    mail = f'<!doctype html><title>Mail</title><a href="{shop.origin}/tasks/{TASK}">{TASK}</a>'
    visitor.context.route("http://mail.example/**", lambda route: route.fulfill(body=mail, content_type="text/html"))
    visitor.may_complain = True
    page = visitor.page
    page.goto("http://mail.example/inbox")
    page.get_by_role("link").click()
    expect(page).to_have_title(re.compile(TASK))
    visitor.strange_requests.clear()


def test_the_address_of_a_used_code_opens_the_page_of_its_browser(shop: Web, visit: Visit) -> None:
    visitor = visit(shop)
    address = shop.take_address()
    for _ in range(2):
        visitor.page.goto(address)
        expect(visitor.page.locator("#waits")).to_be_visible()
        visitor.page.goto("about:blank")
    visitor.strange_requests.clear()
