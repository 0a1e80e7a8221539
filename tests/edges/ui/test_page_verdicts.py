"""A person reviews a task on the page: reads the whole diff, comments on lines, approves or rejects the commit."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from liza.model.history_events import HistoryEvent
from liza.tasks.claim import claim
from tests.conftest import git
from tests.edges.ui.conftest import PageCrew
from tests.edges.ui.page_browser import PageForm, opened


def submit(desk: PageCrew, text: str) -> str:
    """The task of the test is under review with this text, and the page shows that; the commit."""
    there = desk.crew.claimed(desk.task, desk.agent)
    return submit_again(desk, there, text)


def submit_again(desk: PageCrew, there: Path, text: str) -> str:
    (there / f"{desk.task}.txt").write_text(text)
    git(there, "commit", "-q", "-a", "-m", "a text")
    desk.crew.submitted(there)
    commit = desk.crew.task(desk.task).review_commit
    assert commit is not None
    desk.browser.read_when(desk.path, commit[:10])
    desk.browser.read_when(desk.path, "Verdict")
    return commit


def count_lines(number: int) -> str:
    return "".join(f"line {row}\n" for row in range(number))


def find_verdict(desk: PageCrew, action: str, query: str = "") -> PageForm | None:
    return next((form for form in desk.browser.read(desk.path + query).forms if form.value("action") == action), None)


def test_a_commit_is_approved_below_its_diff(desk: PageCrew) -> None:
    commit = submit(desk, count_lines(20))
    form = desk.browser.find_form(desk.path, "approve", desk.task)
    text = desk.browser.read(desk.path).text
    assert "+line 19" in text.partition("Approve its commit")[0]
    assert commit[:10] in form.text
    assert f"liza verdict approve '…' --task {desk.task} --commit {commit[:12]}" in form.text
    assert desk.browser.send(form, "ran it").status == 303
    event = desk.crew.task(desk.task).history[-1]
    assert (event.event, event.commit, event.detail) == (HistoryEvent.APPROVE, commit, "ran it")
    assert "done:" in desk.browser.read(desk.path).text


def test_another_commit_is_not_approved_by_an_old_form(desk: PageCrew) -> None:
    submit(desk, count_lines(3))
    form = desk.browser.find_form(desk.path, "approve", desk.task)
    assert desk.browser.run(desk.browser.find_form(desk.path, "reject", desk.task), "no")["isDone"]
    claim(desk.crew.crew, desk.agent, desk.task)
    submit_again(desk, desk.crew.crew.paths.task_link(desk.task).resolve(), "another\n")
    news = desk.browser.run(form, "ran it")
    assert not news["isDone"]
    assert "changed while you looked" in news["text"]
    assert desk.crew.status(desk.task) == "READY_FOR_REVIEW"


def test_a_long_diff_is_judged_only_below_all_of_it(desk: PageCrew) -> None:
    submit(desk, count_lines(400))
    page = desk.browser.read(desk.path)
    assert "line 399" not in page.text
    assert find_verdict(desk, "approve") is None
    (link,) = {link for link in page.links if "all=1" in link and "verdict" in link}
    assert "+line 399" in desk.browser.read(desk.path + link.partition("#")[0]).text
    assert find_verdict(desk, "approve", "?all=1") is not None


def test_a_diff_too_long_for_a_page_is_judged_in_a_terminal(desk: PageCrew) -> None:
    submit(desk, count_lines(5_100))
    text = desk.browser.read(f"{desk.path}?all=1").text
    assert f"liza diff {desk.task}" in text
    assert "liza verdict approve" in text
    assert find_verdict(desk, "approve", "?all=1") is None


def test_files_that_are_not_shown_have_to_be_acknowledged(desk: PageCrew) -> None:
    (desk.crew.root / ".git" / "info").mkdir(exist_ok=True)
    (desk.crew.root / ".git" / "info" / "attributes").write_text(f"{desk.task}.txt -diff\n")
    submit(desk, "run()\n")
    form = desk.browser.find_form(desk.path, "approve", desk.task)
    assert f"{desk.task}.txt" in form.text
    assert not desk.browser.run(form, "ran it")["isDone"]
    assert desk.browser.run(form, "ran it", known="yes")["isDone"]
    assert desk.crew.status(desk.task) == "APPROVED"


def hunk_form(desk: PageCrew) -> PageForm:
    """The form for a comment, behind the link below a hunk."""
    (link,) = [link for link in desk.browser.read(desk.path).links if "hunk=1" in link]
    path, _, hunk = link.partition("#")
    assert f'id="{hunk}"' in desk.browser.load(path).text
    return desk.browser.find_form(path, "comment", desk.task)


def row_of(desk: PageCrew, line: str) -> str:
    """The number of a line of the diff, as the form has it."""
    body = desk.browser.load(f"{desk.path}?hunk=1").text
    return body.partition(f"{line}</option>")[0].rpartition('value="')[2].partition('"')[0]


def test_comments_on_lines_are_sent_with_a_rejection(desk: PageCrew) -> None:
    submit(desk, count_lines(20))
    first, last = row_of(desk, "4 +line 3"), row_of(desk, "6 +line 5")
    assert desk.browser.send(hunk_form(desk), first, last, "too <b>long</b>").status == 303
    assert desk.browser.send(hunk_form(desk), row_of(desk, "9 +line 8"), "", "and this").status == 303
    text = desk.browser.read(desk.path).text
    shown = text.partition("Verdict")[0]
    assert shown.index("+line 3") < shown.index("to line 6: too <b>long</b>") < shown.index("+line 4")
    assert desk.crew.task(desk.task).review_comments == ()
    form = desk.browser.find_form(desk.path, "reject", desk.task)
    assert "and this" in form.text, "all that is sent is above the button"
    assert desk.browser.send(form, "two lines").status == 303
    assert [(row.path, row.line, row.text) for row in desk.crew.task(desk.task).review_comments] == [
        (f"{desk.task}.txt", 4, "to line 6: too <b>long</b>"),
        (f"{desk.task}.txt", 9, "and this"),
    ]
    assert "to line 6" in desk.browser.read(desk.path).text, "the next diff shows them at their lines"


def test_a_comment_is_removed_again(desk: PageCrew) -> None:
    submit(desk, count_lines(20))
    desk.browser.send(hunk_form(desk), row_of(desk, "4 +line 3"), "", "too long")
    remove = desk.browser.find_form(desk.path, "comment", desk.task)
    assert desk.browser.send(remove, remove.value("text")).status == 303
    assert "too long" not in desk.browser.read(desk.path).text
    assert desk.browser.run(desk.browser.find_form(desk.path, "reject", desk.task), "no")["isDone"]
    assert desk.crew.task(desk.task).review_comments == ()


def test_a_rejection_sends_only_the_comments_that_were_shown(desk: PageCrew) -> None:
    submit(desk, count_lines(20))
    form = desk.browser.find_form(desk.path, "reject", desk.task)
    desk.browser.send(hunk_form(desk), row_of(desk, "4 +line 3"), "", "from another tab")
    news = desk.browser.run(form, "no")
    assert not news["isDone"]
    assert desk.browser.find_form(desk.path, "reject", desk.task).value("text") == "no"


def test_no_part_of_a_line_of_a_diff_is_hidden(desk: PageCrew) -> None:
    lines = ("x='\x1b]'; hidden(); '\x07'", "\x1b[8m gone()", "</ins><script>alert(1)</script> {{ 7*7 }}", "\u202e rtl")
    submit(desk, "\n".join(lines) + "\n")
    body = desk.browser.load(desk.path).text
    assert not {"\x1b", "\x07", "\u202e"} & set(body)
    assert "<script>alert" not in body
    text = desk.browser.read(desk.path).text
    for line in lines:
        assert "".join("�" if letter in "\x1b\x07\u202e" else letter for letter in line) in text


def test_a_read_only_page_shows_the_diff_without_forms(desk: PageCrew) -> None:
    submit(desk, count_lines(20))
    with opened(desk.crew.root, "--read-only") as other:
        page = other.read(f"{desk.path}?hunk=1")
    assert "+line 19" in page.text
    assert all(form.action == "/logout" for form in page.forms)
    assert not [link for link in page.links if "hunk" in link or link.startswith("/do/")]


def test_a_task_is_dropped_only_by_its_name(desk: PageCrew) -> None:
    there = desk.crew.claimed(desk.task, desk.agent)
    (there / f"{desk.task}.txt").write_text("half\n")
    end = f"/do/drop/{desk.task}"
    page = desk.browser.read_when(desk.path, "Show dangerous actions")
    assert all(form.value("action") != "drop" for form in page.forms)
    assert end in page.links
    text = desk.browser.read(end).text
    assert "1 commit that is not merged" in text
    assert f"{desk.task}.txt" in text
    assert f"liza task drop {desk.task}" in text
    form = desk.browser.find_form(end, "drop", desk.task)
    assert desk.browser.send(form, "", name="task").headers["location"] == end
    assert f"type {desk.task} to go on" in desk.browser.read(end).text
    assert desk.crew.status(desk.task) == "CLAIMED"
    assert desk.browser.send(form, "", name=desk.task).headers["location"].startswith(desk.path)
    assert desk.crew.status(desk.task) == "ABANDONED"
    assert "not possible now" in desk.browser.read(end).text


@pytest.mark.parametrize("path", ["/do/approve/pdf", "/do/drop/", "/do/nothing/pdf", f"/do/drop/{quote('../x')}"])
def test_only_actions_that_end_something_have_a_page(desk: PageCrew, path: str) -> None:
    assert desk.browser.load(path).status == 404
