"""What a person does on the page: each action is the verb of the command line, once, and its result is shown."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

import pytest

from liza.model.value_classes import replace
from liza.tasks.pause import CheckpointRequest, checkpoint, resume
from liza.tasks.questions import BlockRequest, block
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add, unblock
from tests.edges.ui.conftest import PageCrew
from tests.edges.ui.page_browser import PageForm, opened
from tests.pictures.example_crew import open_example

QUESTION = "Which sender address?"


def ask(desk: PageCrew, *questions: str) -> None:
    """The task of the test asks."""
    with chdir(desk.crew.claimed(desk.task, desk.agent)):
        block(desk.crew.crew, BlockRequest(reason="no document says it", questions=questions or (QUESTION,)))


@pytest.fixture
def asked(desk: PageCrew) -> PageCrew:
    """A person at the page of a crew in which a task asks."""
    ask(desk)
    return desk


def find_answer(desk: PageCrew) -> PageForm:
    """The form with which the question is answered where it is listed."""
    return desk.browser.find_form("/", "answer", desk.task)


def list_notes(desk: PageCrew) -> list[str]:
    """The notes on the board that name the task of the test."""
    return [row.message for row in desk.crew.crew.board.read().human_notes if desk.task in row.message.split()]


def count_waits(title: str) -> int:
    """How many wait for the person, by the title of a page."""
    return int(title[1:].partition(")")[0])


@pytest.fixture
def cleared(desk: PageCrew) -> Iterator[None]:
    """No signal is set after the test."""
    yield
    if tuple(desk.crew.crew.board.signals()):
        resume(desk.crew.crew)


def test_a_question_is_answered_without_script(asked: PageCrew) -> None:
    form = find_answer(asked)
    assert QUESTION in form.text
    answer = asked.browser.send(form, "billing@shop.example")
    assert (answer.status, answer.headers["location"]) == (303, "/#waits")
    page = asked.browser.read("/")
    assert all(form.value("subject") != asked.task for form in page.forms)
    assert "done:" in page.text
    task = asked.crew.task(asked.task)
    assert [row.answer for row in task.answers] == ["billing@shop.example"]
    assert str(task.history[-1].agent).startswith("human:")


def test_a_draft_is_completed_where_it_waits(desk: PageCrew) -> None:
    name = f"draft-{desk.task}"
    add(desk.crew.crew, (TaskFields(name, description="An invoice has a number"),))
    form = desk.browser.find_form(f"/tasks/{name}", "complete", name)
    assert "An invoice has a number" in form.text
    scope, spec = (
        "shop/invoice.py",
        next((row.spec_ref for row in desk.crew.crew.board.read().tasks if row.spec_ref), ""),
    )
    answer = desk.browser.send(form, "An invoice has a number", "pytest -q", scope, spec)
    assert answer.status == 303
    task = desk.crew.task(name)
    assert (task.done_when, task.scope) == ("pytest -q", scope)


def test_a_note_from_before_a_restart_is_not_left_twice(desk: PageCrew) -> None:
    form = desk.browser.find_form("/", "note")
    fields = tuple((name, f"other{value}" if name == "form" else value) for name, value in form.fields)
    text = f"again {desk.task}"
    assert not desk.browser.run(replace(form, fields=fields), text)["isDone"]
    assert list_notes(desk) == []
    assert text in desk.browser.read("/").text, "it is kept"
    assert desk.browser.run(desk.browser.find_form("/", "note"), text)["isDone"]
    assert list_notes(desk) == [text]


def test_the_script_gets_the_page_without_the_answered_question(asked: PageCrew) -> None:
    form = find_answer(asked)
    before = count_waits(asked.browser.read("/").title)
    news = asked.browser.run(form, "billing")
    assert news["isDone"]
    assert count_waits(news["title"]) == before - 1
    assert f'value="{asked.task}"' not in news["parts"]["waits"]


def test_the_result_of_an_action_is_shown_when_the_page_is_opened_again(asked: PageCrew) -> None:
    asked.browser.send(asked.browser.find_form(asked.path, "answer", asked.task), "billing")
    asked.browser.read("/board")
    assert "done:" in asked.browser.read(asked.path).text


def test_the_same_form_sent_twice_is_one_change(desk: PageCrew) -> None:
    form = desk.browser.find_form("/", "note")
    assert desk.browser.send(form, f"look at {desk.task}").status == 303
    assert desk.browser.send(form, f"look at {desk.task}").status == 303
    assert desk.browser.run(form, f"look at {desk.task}")["isDone"]
    assert list_notes(desk) == [f"look at {desk.task}"]


def test_the_same_form_sent_at_the_same_moment_is_one_change(asked: PageCrew) -> None:
    form = find_answer(asked)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: asked.browser.run(form, "billing"), range(4)))
    assert [answer["isDone"] for answer in answers] == [True] * 4
    assert len(asked.crew.task(asked.task).answers) == 1


def test_a_second_note_is_sent_from_the_same_page(desk: PageCrew) -> None:
    form = desk.browser.find_form("/", "note")
    desk.browser.send(form, f"one {desk.task}")
    desk.browser.send(form, f"two {desk.task}")
    desk.browser.send(desk.browser.find_form("/", "note"), f"two {desk.task}")
    assert list_notes(desk) == [f"{number} {desk.task}" for number in ("one", "two", "two")]


def test_a_form_drawn_before_a_change_is_refused(asked: PageCrew) -> None:
    form = find_answer(asked)
    unblock(asked.crew.crew, asked.task, ["theirs"])
    news = asked.browser.run(form, "my answer")
    assert not news["isDone"]
    assert "changed while you looked" in news["text"]
    page = asked.browser.read(asked.path).text
    assert "refused:" in page
    assert "my answer" in page, "what was typed is not lost"
    assert [row.answer for row in asked.crew.task(asked.task).answers] == ["theirs"]


def test_another_question_is_not_answered_by_an_old_form(asked: PageCrew) -> None:
    form = find_answer(asked)
    with asked.crew.crew.change("human:test", "edit") as tx:
        other = replace(asked.crew.task(asked.task), blocked_questions=("And whose name?",))
        tx.state = tx.state.with_task(other)
    news = asked.browser.run(form, "billing")
    assert not news["isDone"]
    assert "asks something else" in news["text"]
    assert asked.crew.status(asked.task) == "BLOCKED"
    assert find_answer(asked).value("text") == "billing", "it can be sent again"


def test_an_empty_answer_is_not_sent(asked: PageCrew) -> None:
    assert not asked.browser.run(find_answer(asked), "  ")["isDone"]
    assert asked.crew.status(asked.task) == "BLOCKED"


def test_a_read_only_page_changes_nothing(asked: PageCrew) -> None:
    form = find_answer(asked)
    with opened(asked.crew.root, "--read-only") as other:
        assert all(form.action != "/do" for form in other.read("/").forms)
        assert other.send(form, "mine").status == 403
    assert asked.crew.status(asked.task) == "BLOCKED"


@pytest.mark.parametrize("action", ["edit", "command", "run", "attach", "nothing", ""])
def test_only_actions_of_the_page_are_taken(desk: PageCrew, action: str) -> None:
    assert desk.browser.send(desk.browser.find_form("/", "note"), "x", action=action).status == 400


@pytest.mark.parametrize("drawn", ["", "{", '{"mark": 1}', "{}"])
def test_a_form_without_what_was_drawn_changes_nothing(asked: PageCrew, drawn: str) -> None:
    asked.browser.send(find_answer(asked), "x", drawn=drawn)
    assert asked.crew.status(asked.task) == "BLOCKED"


@pytest.mark.usefixtures("cleared")
def test_a_signal_that_was_not_shown_is_not_cleared(desk: PageCrew) -> None:
    assert desk.browser.run(desk.browser.find_form("/", "pause"), "lunch")["isDone"]
    form = desk.browser.find_form("/", "resume")
    checkpoint(desk.crew.crew, CheckpointRequest(why="look at the taxes"))
    assert not desk.browser.run(form)["isDone"]
    assert set(desk.crew.crew.board.signals()) == {"PAUSE", "CHECKPOINT"}


@pytest.mark.usefixtures("cleared")
def test_only_the_newest_of_two_opposite_results_is_shown(desk: PageCrew) -> None:
    desk.browser.send(desk.browser.find_form("/", "pause"), "lunch")
    assert "PAUSE is set: sessions continue" in desk.browser.read("/").text
    desk.browser.send(desk.browser.find_form("/", "resume"))
    page = desk.browser.read("/").text
    assert "PAUSE cleared" in page
    assert "PAUSE is set: sessions continue" not in page


def test_a_task_is_added_on_the_page(desk: PageCrew) -> None:
    texts = (desk.task, "Write", "it is there", "new.txt", "README.md")
    assert desk.browser.run(desk.browser.find_form("/", "add"), *texts)["isDone"]
    assert desk.crew.status(desk.task) == "UNCLAIMED"


HOSTILE = "<script>alert(1)</script> {{ 7*7 }} </textarea> \u202egnp.exe " + "x" * 10_000


def test_hostile_texts_are_shown_as_text(desk: PageCrew) -> None:
    odd = f"odd-{desk.task}"
    add(desk.crew.crew, [TaskFields(odd, HOSTILE, "it is there", "odd.txt", "README.md")])
    ask(desk, HOSTILE)
    form = find_answer(desk)
    for path in ("/", "/board", f"/tasks/{odd}", desk.path):
        html = desk.browser.load(path).text
        assert "<script>alert" not in html, path
        assert "\u202e" not in html, path
        assert "{{ 7*7 }}" in desk.browser.read(path).text, path
    assert desk.browser.run(form, HOSTILE)["isDone"], "the question is compared as it is"
    assert "<script>alert" not in desk.browser.load(desk.path).text
    assert desk.crew.task(desk.task).answers[0].answer == HOSTILE


def test_long_questions_of_any_script_can_be_answered(desk: PageCrew) -> None:
    ask(desk, "寄件人地址" * 2_000)
    assert desk.browser.run(find_answer(desk), "billing")["isDone"]


def test_a_session_gets_a_note_and_an_agent_ends_only_by_its_name(tmp_path: Path) -> None:
    with open_example(tmp_path / "shop") as shop, opened(shop.paths.root) as browser:
        form = browser.find_form("/sessions/coder-1", "send", "coder-1")
        page = browser.read("/sessions/coder-1")
        assert "/do/stop/coder-1" in page.links
        assert "liza attach coder-1" in page.text
        old = form.value("drawn").replace("coder-1.4", "coder-1.3")
        assert "changed while you looked" in browser.run(form, "look", drawn=old)["text"]
        assert browser.run(form, "look at line 31")["isDone"]
        notes = (shop.paths.runs / "coder-1" / "inbox").glob("*.json")
        assert any("look at line 31" in note.read_text() for note in notes)
        form = browser.find_form("/do/stop/coder-1", "stop", "coder-1")
        assert "ends the session coder-1.4" in browser.read("/do/stop/coder-1").text
        assert browser.send(form, name="coder-2").headers["location"] == "/do/stop/coder-1"
        assert "type coder-1 to go on" in browser.read("/do/stop/coder-1").text
