"""A person reviews a task on the page: reads the whole diff, comments on lines, approves or rejects the commit."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from liza.model.history_events import HistoryEvent
from liza.tasks.claim import claim
from tests.conftest import git
from tests.edges.merge_crew import Merges
from tests.edges.ui.page_browser import PageBrowser, PageForm, opened

PAGE = "/tasks/pdf"


def submit(crew: Merges, browser: PageBrowser, text: str) -> str:
    """A task under review whose file has this text, when the page shows that; the commit."""
    there = crew.claimed("pdf")
    (there / "pdf.txt").write_text(text)
    git(there, "commit", "-q", "-a", "-m", "a text")
    crew.submitted(there)
    commit = crew.task("pdf").review_commit
    assert commit is not None
    browser.read_when(PAGE, "Verdict")
    return commit


def count_lines(number: int) -> str:
    return "".join(f"line {row}\n" for row in range(number))


def find_verdict(browser: PageBrowser, action: str, path: str = PAGE) -> PageForm | None:
    return next((form for form in browser.read(path).forms if form.value("action") == action), None)


@pytest.fixture
def browser(crew: Merges) -> Iterator[PageBrowser]:
    with opened(crew.root) as browser:
        yield browser


def test_a_commit_is_approved_below_its_diff(crew: Merges, browser: PageBrowser) -> None:
    commit = submit(crew, browser, count_lines(20))
    form = browser.find_form(PAGE, "approve", "pdf")
    text = browser.read(PAGE).text
    assert "+line 19" in text.partition("Approve its commit")[0]
    assert commit[:10] in form.text
    assert f"liza verdict approve '…' --task pdf --commit {commit[:12]}" in form.text
    assert browser.send(form, "ran it").status == 303
    event = crew.task("pdf").history[-1]
    assert (event.event, event.commit, event.detail) == (HistoryEvent.APPROVE, commit, "ran it")
    assert "done:" in browser.read(PAGE).text


def test_another_commit_is_not_approved_by_an_old_form(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(3))
    form = browser.find_form(PAGE, "approve", "pdf")
    assert browser.run(browser.find_form(PAGE, "reject", "pdf"), "no")["isDone"]
    claim(crew.crew, "coder-1", "pdf")
    again = crew.crew.paths.task_link("pdf").resolve()
    (again / "pdf.txt").write_text("another\n")
    git(again, "commit", "-q", "-a", "-m", "another")
    crew.submitted(again)
    news = browser.run(form, "ran it")
    assert not news["isDone"]
    assert "changed while you looked" in news["text"]
    assert crew.status("pdf") == "READY_FOR_REVIEW"


def test_a_long_diff_is_judged_only_below_all_of_it(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(400))
    page = browser.read(PAGE)
    assert "line 399" not in page.text
    assert find_verdict(browser, "approve") is None
    (link,) = {link for link in page.links if "all=1" in link and "verdict" in link}
    assert "+line 399" in browser.read(PAGE + link.partition("#")[0]).text
    assert find_verdict(browser, "approve", f"{PAGE}?all=1") is not None


def test_a_diff_too_long_for_a_page_is_judged_in_a_terminal(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(5_100))
    text = browser.read(f"{PAGE}?all=1").text
    assert "liza diff pdf" in text
    assert "liza verdict approve" in text
    assert find_verdict(browser, "approve", f"{PAGE}?all=1") is None


def test_files_that_are_not_shown_have_to_be_acknowledged(crew: Merges, browser: PageBrowser) -> None:
    (crew.root / ".git" / "info").mkdir(exist_ok=True)
    (crew.root / ".git" / "info" / "attributes").write_text("*.txt -diff\n")
    submit(crew, browser, "run()\n")
    form = browser.find_form(PAGE, "approve", "pdf")
    assert "pdf.txt" in form.text
    assert not browser.run(form, "ran it")["isDone"]
    assert browser.run(form, "ran it", known="yes")["isDone"]
    assert crew.status("pdf") == "APPROVED"


def hunk_form(browser: PageBrowser) -> PageForm:
    """The form for a comment, behind the link below a hunk."""
    (link,) = [link for link in browser.read(PAGE).links if "hunk=1" in link]
    path, _, hunk = link.partition("#")
    assert f'id="{hunk}"' in browser.load(path).text
    return browser.find_form(path, "comment", "pdf")


def row_of(browser: PageBrowser, line: str) -> str:
    """The number of a line of the diff, as the form has it."""
    body = browser.load(f"{PAGE}?hunk=1").text
    return body.partition(f"{line}</option>")[0].rpartition('value="')[2].partition('"')[0]


def test_comments_on_lines_are_sent_with_a_rejection(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(20))
    first, last = row_of(browser, "4 +line 3"), row_of(browser, "6 +line 5")
    assert browser.send(hunk_form(browser), first, last, "too <b>long</b>").status == 303
    assert browser.send(hunk_form(browser), row_of(browser, "9 +line 8"), "", "and this").status == 303
    text = browser.read(PAGE).text
    shown = text.partition("Verdict")[0]
    assert shown.index("+line 3") < shown.index("to line 6: too <b>long</b>") < shown.index("+line 4")
    assert crew.task("pdf").review_comments == ()
    form = browser.find_form(PAGE, "reject", "pdf")
    assert "and this" in form.text, "all that is sent is above the button"
    assert browser.send(form, "two lines").status == 303
    assert [(row.path, row.line, row.text) for row in crew.task("pdf").review_comments] == [
        ("pdf.txt", 4, "to line 6: too <b>long</b>"),
        ("pdf.txt", 9, "and this"),
    ]
    assert "to line 6" in browser.read(PAGE).text, "the next diff shows them at their lines"


def test_a_comment_is_removed_again(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(20))
    browser.send(hunk_form(browser), row_of(browser, "4 +line 3"), "", "too long")
    remove = browser.find_form(PAGE, "comment", "pdf")
    assert browser.send(remove, remove.value("text")).status == 303
    assert "too long" not in browser.read(PAGE).text
    assert browser.run(browser.find_form(PAGE, "reject", "pdf"), "no")["isDone"]
    assert crew.task("pdf").review_comments == ()


def test_a_rejection_sends_only_the_comments_that_were_shown(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(20))
    form = browser.find_form(PAGE, "reject", "pdf")
    browser.send(hunk_form(browser), row_of(browser, "4 +line 3"), "", "from another tab")
    news = browser.run(form, "no")
    assert not news["isDone"]
    assert browser.find_form(PAGE, "reject", "pdf").value("text") == "no"


def test_no_part_of_a_line_of_a_diff_is_hidden(crew: Merges, browser: PageBrowser) -> None:
    lines = ("x='\x1b]'; hidden(); '\x07'", "\x1b[8m gone()", "</ins><script>alert(1)</script> {{ 7*7 }}", "\u202e rtl")
    submit(crew, browser, "\n".join(lines) + "\n")
    body = browser.load(PAGE).text
    assert not {"\x1b", "\x07", "\u202e"} & set(body)
    assert "<script>alert" not in body
    text = browser.read(PAGE).text
    for line in lines:
        assert "".join("�" if letter in "\x1b\x07\u202e" else letter for letter in line) in text


def test_a_read_only_page_shows_the_diff_without_forms(crew: Merges, browser: PageBrowser) -> None:
    submit(crew, browser, count_lines(20))
    with opened(crew.root, "--read-only") as other:
        page = other.read(f"{PAGE}?hunk=1")
    assert "+line 19" in page.text
    assert all(form.action == "/logout" for form in page.forms)
    assert not [link for link in page.links if "hunk" in link or link.startswith("/do/")]


def test_a_task_is_dropped_only_by_its_name(crew: Merges, browser: PageBrowser) -> None:
    there = crew.claimed("fax")
    (there / "fax.txt").write_text("half\n")
    page = browser.read_when("/tasks/fax", "Show dangerous actions")
    assert all(form.value("action") != "drop" for form in page.forms)
    assert "/do/drop/fax" in page.links
    text = browser.read("/do/drop/fax").text
    assert "1 commit that is not merged" in text
    assert "fax.txt" in text
    assert "liza task drop fax" in text
    form = browser.find_form("/do/drop/fax", "drop", "fax")
    refused = browser.send(form, "", name="fa")
    assert refused.headers["location"] == "/do/drop/fax"
    assert "type fax to go on" in browser.read("/do/drop/fax").text
    assert crew.status("fax") == "CLAIMED"
    assert browser.send(form, "", name="fax").headers["location"].startswith("/tasks/fax")
    assert crew.status("fax") == "ABANDONED"
    assert "not possible now" in browser.read("/do/drop/fax").text


@pytest.mark.parametrize("path", ["/do/approve/pdf", "/do/drop/", "/do/nothing/pdf", f"/do/drop/{quote('../x')}"])
def test_only_actions_that_end_something_have_a_page(browser: PageBrowser, path: str) -> None:
    assert browser.load(path).status == 404
