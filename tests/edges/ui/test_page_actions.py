"""What a person does on the page: each action is the verb of the command line, once, and its result is shown."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

import pytest

from liza.board import signals
from liza.model.value_classes import replace
from liza.tasks.pause import CheckpointRequest, checkpoint
from liza.tasks.questions import BlockRequest, block
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add, unblock
from tests.edges.merge_crew import Merges
from tests.edges.ui.page_browser import PageBrowser, opened
from tests.pictures.example_crew import open_example

QUESTION = "Which sender address?"


def ask(crew: Merges, task: str = "mail", question: str = QUESTION) -> None:
    with chdir(crew.claimed(task)):
        block(crew.crew, BlockRequest(reason="no document says it", questions=(question,)))


@pytest.fixture
def browser(crew: Merges) -> Iterator[PageBrowser]:
    """A browser at a crew in which a task asks."""
    ask(crew)
    with opened(crew.root) as browser:
        yield browser


def waits(browser: PageBrowser) -> int:
    """What the page says waits."""
    return int(browser.read("/").text.partition(" waiting for you: ")[2].split()[0])


def test_a_question_is_answered_without_script(crew: Merges, browser: PageBrowser) -> None:
    assert QUESTION in browser.read("/").text
    answer = browser.send(browser.find_form("/", "answer", "mail"), "billing@shop.example")
    assert (answer.status, answer.headers["location"]) == (303, "/#waits")
    page = browser.read("/")
    assert all(form.value("action") != "answer" for form in page.forms)
    assert "done:" in page.text
    task = crew.task("mail")
    assert [row.answer for row in task.answers] == ["billing@shop.example"]
    assert str(task.history[-1].agent).startswith("human:")


def test_the_script_gets_the_page_without_the_answered_question(browser: PageBrowser) -> None:
    browser.read("/")
    news = browser.run(browser.find_form("/", "answer", "mail"), "billing")
    assert news["isDone"]
    assert news["title"].startswith("(0)")
    assert 'value="answer"' not in news["parts"]["waits"]


def test_the_result_of_an_action_is_shown_when_the_page_is_opened_again(browser: PageBrowser) -> None:
    browser.send(browser.find_form("/tasks/mail", "answer", "mail"), "billing")
    browser.read("/board")
    assert "done:" in browser.read("/tasks/mail").text


def test_the_same_form_sent_twice_is_one_change(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/tasks/mail", "note", "mail")
    assert browser.send(form, "use the old address").status == 303
    assert browser.send(form, "use the old address").status == 303
    assert browser.run(form, "use the old address")["isDone"]
    assert [row.message for row in crew.crew.board.read().human_notes] == ["use the old address"]


def test_the_same_form_sent_at_the_same_moment_is_one_change(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/", "answer", "mail")
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: browser.run(form, "billing"), range(4)))
    assert [answer["isDone"] for answer in answers] == [True] * 4
    assert len(crew.task("mail").answers) == 1


def test_a_second_note_is_sent_from_the_same_page(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/", "note")
    browser.send(form, "one")
    browser.send(form, "two")
    browser.send(browser.find_form("/", "note"), "two")
    assert [row.message for row in crew.crew.board.read().human_notes] == ["one", "two", "two"]


def test_a_form_drawn_before_a_change_is_refused(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/", "answer", "mail")
    unblock(crew.crew, "mail", ["theirs"])
    news = browser.run(form, "mine")
    assert not news["isDone"]
    assert "changed while you looked" in news["text"]
    page = browser.read("/tasks/mail").text
    assert "refused:" in page
    assert "mine" in page, "what was typed is not lost"
    assert [row.answer for row in crew.task("mail").answers] == ["theirs"]


def test_an_empty_answer_is_not_sent(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/", "answer", "mail")
    assert not browser.run(form, "  ")["isDone"]
    assert crew.status("mail") == "BLOCKED"


def test_a_read_only_page_changes_nothing(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/", "answer", "mail")
    with opened(crew.root, "--read-only") as other:
        assert all(form.action != "/do" for form in other.read("/").forms)
        assert other.send(form, "mine").status == 403
    assert crew.status("mail") == "BLOCKED"


@pytest.mark.parametrize("action", ["edit", "command", "run", "attach", "nothing", ""])
def test_only_actions_of_the_page_are_taken(browser: PageBrowser, action: str) -> None:
    assert browser.send(browser.find_form("/", "note"), "x", action=action).status == 400


@pytest.mark.parametrize("drawn", ["", "{", '{"mark": 1}', "{}"])
def test_a_form_without_what_was_drawn_changes_nothing(crew: Merges, browser: PageBrowser, drawn: str) -> None:
    browser.send(browser.find_form("/", "answer", "mail"), "x", drawn=drawn)
    assert crew.status("mail") == "BLOCKED"


def test_a_signal_that_was_not_shown_is_not_cleared(crew: Merges, browser: PageBrowser) -> None:
    assert browser.run(browser.find_form("/", "pause"), "lunch")["isDone"]
    form = browser.find_form("/", "resume")
    checkpoint(crew.crew, CheckpointRequest(why="look at the taxes"))
    assert not browser.run(form)["isDone"]
    assert set(signals.active_signals(crew.crew.paths)) == {"PAUSE", "CHECKPOINT"}


def test_a_task_is_added_on_the_page(crew: Merges, browser: PageBrowser) -> None:
    texts = ("new", "Write", "it is there", "new.txt", "README.md")
    assert browser.run(browser.find_form("/", "add"), *texts)["isDone"]
    assert crew.status("new") == "UNCLAIMED"


HOSTILE = "<script>alert(1)</script> {{ 7*7 }} </textarea> \u202egnp.exe " + "x" * 10_000


def test_hostile_texts_are_shown_as_text(crew: Merges) -> None:
    add(crew.crew, [TaskFields("odd", HOSTILE, "it is there", "odd.txt", "README.md")])
    ask(crew, "mail", HOSTILE)
    with opened(crew.root) as browser:
        for path in ("/", "/board", "/tasks/odd", "/tasks/mail"):
            html = browser.load(path).text
            assert "<script>alert" not in html, path
            assert "\u202e" not in html, path
            assert "{{ 7*7 }}" in browser.read(path).text, path
        form = browser.find_form("/", "answer", "mail")
        assert browser.run(form, HOSTILE)["isDone"], "the question is compared as it is"
        assert "<script>alert" not in browser.load("/tasks/mail").text
    assert crew.task("mail").answers[0].answer == HOSTILE


def test_long_questions_of_any_script_can_be_answered(crew: Merges) -> None:
    ask(crew, "mail", "寄件人地址" * 2_000)
    with opened(crew.root) as browser:
        assert browser.run(browser.find_form("/", "answer", "mail"), "billing")["isDone"]


def test_another_question_is_not_answered_by_an_old_form(crew: Merges, browser: PageBrowser) -> None:
    form = browser.find_form("/", "answer", "mail")
    with crew.crew.change("human:test", "edit") as tx:
        tx.state = tx.state.with_task(replace(crew.task("mail"), blocked_questions=("And whose name?",)))
    news = browser.run(form, "billing")
    assert not news["isDone"]
    assert "asks something else" in news["text"]
    assert crew.status("mail") == "BLOCKED"
    assert browser.find_form("/", "answer", "mail").value("text") == "billing"


def test_a_note_reaches_the_session_that_was_shown(tmp_path: Path) -> None:
    with open_example(tmp_path / "shop") as shop, opened(shop.paths.root) as browser:
        form = browser.find_form("/sessions/coder-1", "send", "coder-1")
        assert "coder-1.4" in form.text
        old = form.value("drawn").replace("coder-1.4", "coder-1.3")
        assert "changed while you looked" in browser.run(form, "look", drawn=old)["text"]
        assert browser.run(form, "look at line 31")["isDone"]
        notes = (shop.paths.runs / "coder-1" / "inbox").glob("*.json")
        assert any("look at line 31" in note.read_text() for note in notes)


def test_only_the_newest_of_two_opposite_results_is_shown(browser: PageBrowser) -> None:
    browser.send(browser.find_form("/", "pause"), "lunch")
    browser.send(browser.find_form("/", "resume"))
    assert browser.read("/").text.count("done:") == 1


def test_an_agent_is_stopped_only_by_its_name(tmp_path: Path) -> None:
    with open_example(tmp_path / "shop") as shop, opened(shop.paths.root) as browser:
        page = browser.read_when("/sessions/coder-1", "Show dangerous actions")
        assert "/do/stop/coder-1" in page.links
        assert "liza attach coder-1" in page.text
        form = browser.find_form("/do/stop/coder-1", "stop", "coder-1")
        assert "ends the session coder-1.4" in browser.read("/do/stop/coder-1").text
        assert browser.send(form, name="coder-2").headers["location"] == "/do/stop/coder-1"
        assert "type coder-1 to go on" in browser.read("/do/stop/coder-1").text
