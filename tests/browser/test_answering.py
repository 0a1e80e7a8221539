"""A person answers and judges on a phone: in two tabs, without script, while the board changes."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, expect

from liza.model.statuses import Status
from tests.browser.conftest import Visit
from tests.browser.shops import Web

TASK = "vat-rates"
ANSWER = "8.1 % for Switzerland, 25 % for Norway"


def find_question(page: Page) -> Locator:
    """The card of the question that waits."""
    return page.locator("#waits article", has_text=TASK).filter(has=page.locator("form"))


def answer(page: Page) -> None:
    """Write an answer into each field, and send them. ``all`` does not wait for the page."""
    question = find_question(page)
    expect(question).to_have_count(1)
    for field in question.locator("textarea").all():
        field.fill(ANSWER)
    question.get_by_role("button", name="Answer").click()


def ask(web: Web, question: str) -> None:
    """Let a task wait for the answer to a question."""
    web.change_task(TASK, status=Status.BLOCKED, blocked_reason="nobody has decided", blocked_questions=(question,))


def test_login_takes_the_code_out_of_the_address(shop: Web, visit: Visit) -> None:
    page, address = visit(shop).page, shop.take_address()
    for _ in ("a new code", "a used code, in a browser that is logged in"):
        page.goto(address)
        expect(page.locator("#waits")).to_be_visible()
        assert "t=" not in page.url


def test_an_answered_question_leaves_the_list_in_every_tab(own_shop: Web, visit: Visit) -> None:
    ask(own_shop, "Which rate holds for Norway?")
    visitor = visit(own_shop).log_in()
    other = visitor.context.new_page()
    other.goto(own_shop.origin)
    count = int(re.findall(r"\d+", other.title())[0])
    for page in (visitor.page, other):
        expect(find_question(page)).to_have_count(1)
    answer(visitor.page)
    for page in (visitor.page, other):
        expect(find_question(page)).to_have_count(0)
        expect(page).to_have_title(re.compile(rf"^\({count - 1}\)"))
    result = visitor.page.locator("#waits").get_by_role("status").filter(has_text=TASK).first
    expect(result).to_be_visible()
    visitor.page.reload()
    expect(result).to_be_visible()
    assert own_shop.board.read().task(TASK).answers[-1].answer == ANSWER


def test_a_half_typed_answer_survives_twenty_changes_of_the_board(own_shop: Web, visit: Visit) -> None:
    ask(own_shop, "Which rate holds for Switzerland?")
    page = visit(own_shop).log_in().page
    question = find_question(page)
    field = question.locator("textarea").first
    field.press_sequentially("8.1")
    for number in range(20):
        own_shop.describe(f"Print the invoice, change {number}.")
        expect(page.locator("#work")).to_contain_text(f"change {number}.")
    own_shop.change_task(TASK, blocked_reason="two people have decided")
    field.press_sequentially(" %")
    own_shop.describe("Print the invoice, the last change.")
    expect(page.locator("#work")).to_contain_text("the last change.")
    expect(field).to_have_value("8.1 %")
    expect(field).to_be_focused()
    field.blur()
    expect(question).to_contain_text("two people have decided")
    blocked = {"status": Status.BLOCKED, "blocked_reason": "no term", "blocked_questions": ("Which term holds?",)}
    own_shop.change_task("payment-terms", **blocked)
    expect(page.locator("#waits")).to_contain_text("Which term holds?")
    expect(field).to_have_value("8.1 %")


def test_everything_works_without_script(own_shop: Web, visit: Visit) -> None:
    ask(own_shop, "Which rate holds for Iceland?")
    visitor = visit(own_shop, java_script_enabled=False)
    page = visitor.page
    address, _, code = own_shop.take_address().partition("#t=")
    page.goto(address)
    page.get_by_label("Code").fill(code)
    page.get_by_role("button", name="Log in").click()
    for screen in ("Board", "Agents", "Queue", "Costs", "History"):
        page.get_by_role("navigation").get_by_role("link", name=screen).click()
        expect(page.get_by_role("heading", name=re.compile(screen, re.IGNORECASE)).first).to_be_attached()
    page.get_by_role("navigation").get_by_role("link", name="Now").click()
    answer(page)
    expect(find_question(page)).to_have_count(0)
    assert own_shop.board.read().task(TASK).answers[-1].answer == ANSWER


@pytest.mark.campaign
def test_a_commit_is_rejected_with_a_comment_on_its_line(own_shop: Web, visit: Visit) -> None:
    page = visit(own_shop).log_in().page
    page.goto(f"{own_shop.origin}/tasks/invoice-mail")
    page.get_by_role("link", name="Comment on these lines").last.click()
    lines = page.get_by_label("from line")
    lines.select_option(lines.locator("option", has_text="return attempt").get_attribute("value"))
    page.get_by_label("your comment").fill("Say which attempt it was.")
    page.get_by_role("button", name="Keep the comment").click()
    expect(page.locator("#diff")).to_contain_text("Say which attempt it was.")
    page.locator("summary", has_text="Reject its commit").click()
    form = page.locator("#verdict form", has_text="Reject").filter(visible=True)
    form.get_by_role("textbox").first.fill("1. shop/mail.py: see the comment")
    form.get_by_role("button").click()
    expect(page.locator("#verdict").get_by_role("status")).to_contain_text("done")
    task = own_shop.board.read().task("invoice-mail")
    assert task.status is Status.REJECTED
    assert "Say which attempt it was." in [comment.text for comment in task.review_comments]
