"""What a person does in the picture: each action is the verb of the command line, and nothing is done by chance."""

from __future__ import annotations

import threading
from contextlib import chdir

import pytest
from textual import events

from liza.crew.crew import Crew
from liza.merging.merge_recovery import recover_if_dead
from liza.model.alarm_table import AlarmRow
from liza.model.history_events import HistoryEvent
from liza.model.value_classes import replace
from liza.tasks.archive import archive
from liza.tasks.diff import TaskDiff
from liza.tasks.pause import CheckpointRequest, checkpoint, pause
from liza.tasks.questions import BlockRequest, block
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add, drop, unblock
from liza.ui import facts
from liza.ui.act import act
from liza.ui.rules.lines import Target, TargetKind
from liza.ui.rules.offers import ActionName, Offer, ShownWork, find_offer, offer_for_crew, offer_for_task
from liza.ui.rules.snapshot import ScreenName, Wanted
from liza.view.status import look
from tests.conftest import git
from tests.edges.merge_crew import Merges
from tests.edges.ui.person import Person, sit_down

QUESTIONS = ("Which sender address?", "And whose name?")


@pytest.fixture(params=["colours", "NO_COLOR"])
def asked(request: pytest.FixtureRequest, crew: Merges, monkeypatch: pytest.MonkeyPatch) -> Merges:
    """A crew with a task that asks two questions; the picture with and without colours."""
    if request.param == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    there = crew.claimed("mail")
    with chdir(there):
        block(crew.crew, BlockRequest(reason="no document says it", questions=QUESTIONS))
    return crew


def task_of(name: str) -> Target:
    return Target(TargetKind.TASK, name)


def test_a_question_is_answered_where_it_is_listed(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.wait(lambda: "1 waits for you" in person.text)
        await person.choose(task_of("mail"))
        await person.begin("a")
        assert all(question in person.text for question in QUESTIONS)
        await person.type("billing")
        await person.press("enter")
        await person.paste("Ana\nBo " + "x" * 5_000)
        await person.wait(lambda: "⏎" in person.text)
        assert person.text.count("answer its question") == 1
        assert all(question in person.text for question in QUESTIONS)
        await person.press("enter")
        await person.wait(lambda: not person.is_asked and "answered" in person.notice)

    sit_down(asked.crew, steps)
    task = asked.task("mail")
    assert task.status == "UNCLAIMED"
    assert [len(answer.answer) for answer in task.answers] == [7, 5_007]
    assert task.answers[1].answer.startswith("Ana\nBo xxx")
    assert str(task.history[-1].agent).startswith("human:")


def test_an_answer_is_refused_if_another_person_was_first(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.choose(task_of("mail"))
        await person.begin("a")
        await person.type("mine")
        await person.press("enter", "m")
        unblock(asked.crew, "mail", ["theirs", "theirs"])
        await person.press("enter")
        await person.wait(lambda: "changed while you looked" in person.text and person.is_asked)
        assert person.fields == ["mine", "m"]
        await person.press("escape")
        await person.wait(lambda: "0 wait for you" in person.text)

    sit_down(asked.crew, steps)
    assert [answer.answer for answer in asked.task("mail").answers] == ["theirs", "theirs"]


async def leave_half(person: Person) -> None:
    """Begin an answer, and leave it."""
    await person.choose(task_of("mail"))
    await person.begin("a")
    await person.type("half")
    await person.press("escape")
    await person.wait(lambda: not person.is_asked)


def test_a_text_that_was_not_sent_is_kept(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await leave_half(person)
        await person.begin("a")
        assert person.fields == ["half", ""]
        await person.press("enter", "enter")
        assert person.is_asked, "an empty answer is not sent"

    sit_down(asked.crew, steps)
    assert asked.status("mail") == "BLOCKED"


def test_escape_closes_a_dialog_that_was_not_there_yet(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await leave_half(person)
        for key in ("a", "x", "p", "+"):
            person.app.post_message(events.Key(key, key))
            person.app.post_message(events.Key("escape", None))
            await person.press()
            await person.wait(lambda: not person.is_asked)
        await person.begin("a")
        assert person.fields == ["half", ""]

    sit_down(asked.crew, steps)


def test_pasted_text_is_not_taken_as_keys(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.choose(task_of("mail"))
        await person.paste("a x p :" * 700)
        for key in "axp+" * 5:
            person.app.post_message(events.Key(key, key))
        await person.wait(lambda: "pasted" in person.notice)
        await person.wait(lambda: not person.app.holds_keys)
        assert not person.is_asked

    sit_down(asked.crew, steps)


def submitted(crew: Merges) -> str:
    there = crew.claimed("pdf")
    (there / "pdf.txt").write_text("".join(f"line {number}\n" for number in range(60)))
    git(there, "commit", "-q", "-a", "-m", "sixty lines")
    crew.submitted(there)
    commit = crew.task("pdf").review_commit
    assert commit is not None
    return commit


def test_a_commit_is_approved_only_after_all_of_its_diff_was_shown(crew: Merges) -> None:
    commit = submitted(crew)

    async def steps(person: Person) -> None:
        await person.choose(task_of("pdf"))
        await person.begin("x")
        await person.press("enter")
        await person.wait(lambda: "not read yet" in person.notice)
        await person.open(Wanted(ScreenName.TASK, "pdf"))
        await person.press("G")
        await person.begin("a")
        await person.press("enter")
        await person.wait(lambda: "not on the screen yet" in person.notice)
        await person.press("g", *["pagedown"] * 8)
        await person.begin("a")
        await person.begin("enter")
        await person.type("ran it")
        await person.begin("enter")
        await person.wait(lambda: "y does it" in person.text)
        await person.press("enter")
        await person.wait(lambda: not person.is_asked)
        assert crew.status("pdf") == "READY_FOR_REVIEW", "Enter confirms nothing"
        await person.begin("a")
        await person.begin("enter")
        assert person.fields == ["ran it"]
        await person.begin("enter")
        await person.press("y")
        await person.wait(lambda: crew.status("pdf") == "APPROVED")

    sit_down(crew.crew, steps)
    event = crew.task("pdf").history[-1]
    assert (event.event, event.commit, event.detail) == (HistoryEvent.APPROVE, commit, "ran it")


def submitted_text(crew: Merges, text: str) -> None:
    there = crew.claimed("pdf")
    (there / "pdf.txt").write_bytes(text.encode())
    git(there, "commit", "-q", "-a", "-m", "a text")
    crew.submitted(there)


@pytest.mark.parametrize(
    "line",
    ["☰" * 60 + " hidden()", "x='\x1b]'; hidden(); '\x07'", "x='\x1bP'; hidden(); '\x1b\\'", "\x1b[8m hidden()"],
)
def test_no_part_of_a_line_of_a_diff_is_hidden(crew: Merges, line: str) -> None:
    submitted_text(crew, line + "\n")

    async def steps(person: Person) -> None:
        await person.open(Wanted(ScreenName.TASK, "pdf"))
        await person.press("G")
        await person.wait(lambda: "hidden()" in person.text)

    sit_down(crew.crew, steps)


def test_a_file_that_is_not_shown_as_text_is_named(crew: Merges) -> None:
    (crew.root / ".git" / "info").mkdir(exist_ok=True)
    (crew.root / ".git" / "info" / "attributes").write_text("*.txt -diff\n")
    submitted_text(crew, "run()\n")

    async def steps(person: Person) -> None:
        await person.open(Wanted(ScreenName.TASK, "pdf"))
        await person.press(*["pagedown"] * 4)
        await person.press("a")
        await person.begin("enter")
        assert "not shown as text" in person.text
        assert "pdf.txt" in person.text

    sit_down(crew.crew, steps)


def test_rows_below_a_dialog_do_not_count_as_shown(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted_text(crew, "".join(f"line {number}\n" for number in range(4)))
    is_open = threading.Event()
    read_diff = facts.diff

    def read_late(crew: Crew, task: str) -> TaskDiff:
        is_open.wait(20)
        return read_diff(crew, task)

    monkeypatch.setattr(facts, "diff", read_late)

    async def steps(person: Person) -> None:
        person.app.open(Wanted(ScreenName.TASK, "pdf"))
        await person.begin("x")
        is_open.set()
        await person.wait(lambda: person.app.diff_version is not None and "line 0" in person.app.body.lines[-4].text)
        offer = find_offer(person.app.list_offers(), ActionName.APPROVE)
        assert offer is not None
        assert person.app.count_unseen(offer)
        await person.press("escape")
        await person.wait(lambda: person.app.count_unseen(offer) == 0)

    sit_down(crew.crew, steps, size=(80, 60))


def test_rows_of_another_width_have_to_be_shown_again(crew: Merges) -> None:
    submitted_text(crew, "".join("x" * 300 + f" {number}\n" for number in range(40)))

    async def steps(person: Person) -> None:
        await person.open(Wanted(ScreenName.TASK, "pdf"))
        await person.press(*["pagedown"] * 14)
        offer = find_offer(person.app.list_offers(), ActionName.APPROVE)
        assert offer is not None
        await person.wait(lambda: person.app.count_unseen(offer) == 0)
        await person.pilot.resize_terminal(70, 24)
        await person.wait(lambda: person.app.count_unseen(offer))

    sit_down(crew.crew, steps)


def test_comments_on_lines_are_sent_with_a_rejection(crew: Merges) -> None:
    submitted(crew)

    async def steps(person: Person) -> None:
        await person.open(Wanted(ScreenName.TASK, "pdf"))
        diff = person.app.snapshot.task.diff.diff.split("\n")  # type: ignore[union-attr]
        await person.choose(Target(TargetKind.DIFF_LINE, f"{diff.index('+line 3')}.0"))
        await person.begin("v", "v", "c")
        await person.type("too")
        await person.press("enter")
        await person.wait(lambda: "yours, sent with the rejection" in person.text)
        await person.begin("a")
        await person.begin("j", "enter")
        await person.wait(lambda: "pdf.txt:4" in person.text)
        await person.type("no")
        await person.begin("enter")
        await person.press("y")
        await person.wait(lambda: crew.status("pdf") == "REJECTED")

    sit_down(crew.crew, steps)
    (comment,) = crew.task("pdf").review_comments
    assert (comment.path, comment.line, comment.quote) == ("pdf.txt", 4, "line 3")
    assert comment.text == "to line 5: too"


def test_a_task_is_dropped_only_by_its_name_and_a_key(crew: Merges) -> None:
    there = crew.claimed("fax")
    (there / "fax.txt").write_text("half\n")

    async def steps(person: Person) -> None:
        await person.choose(task_of("fax"))
        await person.begin("x")
        rows = [line.text for line in person.app.screen.query_one("#menu").lines]  # type: ignore[attr-defined]
        number = next(number for number, row in enumerate(rows) if row.startswith("drop"))
        await person.begin(*["j"] * number, "enter")
        await person.wait(lambda: "1 commit that is not merged" in person.text)
        assert "fax.txt" in person.text
        await person.press("enter", "x", "enter")
        assert person.is_asked, "another name drops nothing"
        await person.press("backspace")
        await person.type("fax")
        await person.begin("enter")
        await person.press("enter")
        await person.wait(lambda: not person.is_asked)
        assert crew.status("fax") == "CLAIMED"
        await person.begin("x")
        await person.begin(*["j"] * number, "enter")
        await person.press("enter")
        await person.type("fax")
        await person.begin("enter")
        await person.press("y")
        await person.wait(lambda: crew.status("fax") == "ABANDONED")

    sit_down(crew.crew, steps)


def test_the_crew_is_paused_and_goes_on(crew: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.begin("p")
        await person.type("lunch")
        await person.begin("enter")
        await person.press("y")
        await person.wait(lambda: "PAUSE is set" in person.text)
        await person.begin("p")
        await person.wait(lambda: "lunch" in person.text)
        await person.press("y")
        await person.wait(lambda: "cleared" in person.notice)

    sit_down(crew.crew, steps)


def test_a_task_is_added_moved_held_and_noted_from_the_picture(crew: Merges) -> None:
    crew.approved("a", "b")

    async def act(person: Person, words: str, *texts: str) -> None:
        await person.wait(lambda: any(offer.name.startswith(words) for offer in person.app.list_offers()))
        await person.begin("x")
        rows = [line.text for line in person.app.screen.query_one("#menu").lines]  # type: ignore[attr-defined]
        number = next(number for number, row in enumerate(rows) if row.startswith(words))
        await person.begin(*["j"] * number, "enter")
        for text in texts:
            await person.type(text)
            await person.press("enter")
        await person.wait(lambda: "y does it" in person.text or not person.is_asked)
        await person.press("y") if person.is_asked else None
        await person.wait(lambda: person.notice.strip() != "…")

    async def steps(person: Person) -> None:
        await person.choose(task_of("b"))
        await act(person, "hold", "later")
        assert crew.task("b").merge_hold == "later"
        await person.choose(task_of("b"))
        await act(person, "end the hold")
        assert crew.task("b").merge_hold is None
        await act(person, "leave a note", "look")
        assert crew.crew.board.read().human_notes[-1].recipient == "b"
        await person.begin("+")
        for text in ("new", "Write", "it is there", "new.txt", "README.md"):
            await person.type(text)
            await person.press("enter")
        await person.wait(lambda: crew.crew.board.read().task("new") is not None)

    sit_down(crew.crew, steps)
    assert crew.status("new") == "UNCLAIMED"


def test_a_read_only_picture_has_no_key_that_changes_anything(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.choose(task_of("mail"))
        for key in "axtwp+e:":
            await person.press(key)
            assert "read-only" in person.notice
        assert not person.is_asked
        await person.press("l")
        assert person.app.view.screen is ScreenName.SESSION

    sit_down(asked.crew, steps, is_read_only=True)


def test_a_task_that_is_archived_is_refused_in_a_sentence(crew: Merges) -> None:
    add(crew.crew, [TaskFields("gone", "Write", "it is there", "gone.txt", "README.md")])

    async def steps(person: Person) -> None:
        await person.choose(task_of("gone"))
        await person.begin("w")
        await person.type("hello")
        drop(crew.crew, "gone", "", None, recover_if_dead)
        archive(crew.crew, 0)
        await person.press("enter")
        await person.wait(lambda: "is not on the board any more" in person.text and person.is_asked)
        assert person.fields == ["hello"]

    sit_down(crew.crew, steps)


def test_the_cursor_goes_to_the_next_line_that_waits_from_everywhere(asked: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.open(Wanted(ScreenName.SESSION, "coder-1"))
        await person.press("n")
        await person.wait(
            lambda: person.app.view.screen is ScreenName.NOW and person.app.body.chosen == task_of("mail")
        )
        await person.press("y")
        await person.wait(lambda: "copied: liza answer mail" in person.notice)

    sit_down(asked.crew, steps)


def test_only_the_signals_that_were_shown_are_cleared(crew: Merges) -> None:
    pause(crew.crew, "lunch")

    async def steps(person: Person) -> None:
        await person.wait(lambda: "PAUSE is set" in person.text)
        await person.begin("p")
        checkpoint(crew.crew, CheckpointRequest(why="look at the taxes"))
        await person.press("y")
        await person.wait(lambda: "refused" in person.notice and "look at the taxes" in person.notice)

    sit_down(crew.crew, steps)
    assert set(crew.crew.board.signals()) == {"PAUSE", "CHECKPOINT"}


def test_no_other_session_is_ended_than_the_one_that_was_shown(crew: Merges) -> None:
    crew.claimed("pdf")
    task = crew.task("pdf")
    offers = {offer.name: offer for offer in offer_for_task(task)}
    for name in (ActionName.RELEASE, ActionName.DROP):
        outcome = act(crew.crew, replace(offers[name], work=ShownWork("code-reviewer-1", "code-reviewer-1.9")), ("",))
        assert not outcome.is_done
    for name in (ActionName.STOP, ActionName.SEND):
        agent = str(task.assigned_to)
        outcome = act(crew.crew, Offer(name, agent, work=ShownWork(agent, f"{agent}.99")), ("hello",))
        assert not outcome.is_done
        assert "changed while you looked" in outcome.text
    assert crew.status("pdf") == "CLAIMED"
    assert act(crew.crew, offers[ActionName.RELEASE], ()).is_done


def test_nothing_opens_over_a_text_that_is_being_typed(crew: Merges) -> None:
    crew.claimed("pdf")
    drop, note = (
        next(offer for offer in offer_for_task(crew.task("pdf")) if offer.name is name)
        for name in (ActionName.DROP, ActionName.NOTE)
    )

    async def steps(person: Person) -> None:
        person.app.begin(drop)
        person.app.begin(note)
        await person.wait(lambda: "while you type" in person.notice)
        assert len(person.app.screen_stack) == 2
        await person.type("hello")
        await person.press("ctrl+q")
        assert person.fields == ["hello"]

    sit_down(crew.crew, steps)


def test_keys_that_come_while_a_dialog_closes_close_nothing_else(crew: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.begin("x")
        menu = person.app.screen
        for key in ("q", "escape", "escape"):
            menu.post_message(events.Key(key, None))
        await person.wait(lambda: not person.is_asked)
        await person.begin("x")

    sit_down(crew.crew, steps)


def test_leaving_waits_for_an_action_or_prints_what_became_of_it(crew: Merges) -> None:
    left: list[Person] = []

    async def steps(person: Person) -> None:
        left.append(person)
        await person.wait(lambda: person.app.list_offers())
        await person.begin("w")
        await person.type("hello")
        with crew.crew.change("human:ana", "test"):
            await person.press("enter")
            await person.press("q")
            await person.wait(lambda: "q again" in person.notice)
            await person.press("q")
        await person.wait(lambda: person.app.unshown)

    sit_down(crew.crew, steps)
    assert [outcome.is_done for outcome in left[0].app.unshown] == [True]
    assert crew.crew.board.read().human_notes[-1].message == "hello"


def test_a_comment_that_was_not_kept_is_not_sent(crew: Merges) -> None:
    submitted(crew)

    async def steps(person: Person) -> None:
        await person.open(Wanted(ScreenName.TASK, "pdf"))
        diff = person.app.snapshot.task.diff.diff.split("\n")  # type: ignore[union-attr]
        line = Target(TargetKind.DIFF_LINE, f"{diff.index('+line 3')}.0")
        await person.choose(line)
        await person.begin("c")
        await person.type("too")
        await person.press("escape")
        await person.wait(lambda: not person.is_asked)
        assert person.app.view.comments == ()
        await person.begin("c")
        assert person.fields == ["too"]

    sit_down(crew.crew, steps)


def test_a_command_that_could_not_run_is_there_to_be_mended(crew: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.wait(lambda: person.app.list_offers())
        await person.begin(":")
        await person.type("statux")
        await person.press("enter")
        await person.wait(lambda: "another terminal" in person.notice)
        await person.begin(":")
        assert person.fields == ["statux"]

    sit_down(crew.crew, steps)


def test_a_second_note_is_begun_while_the_first_is_sent(crew: Merges) -> None:
    async def steps(person: Person) -> None:
        await person.wait(lambda: person.app.list_offers())
        with crew.crew.change("human:ana", "test"):
            await person.begin("w")
            await person.type("one")
            await person.press("enter")
            await person.begin("w")
            assert person.fields == [""]
            await person.type("two")
            await person.press("escape")
        await person.wait(lambda: crew.crew.board.read().human_notes)
        await person.wait(lambda: person.notice.strip() not in ("", "…"))
        await person.begin("w")
        assert person.fields == ["two"]

    sit_down(crew.crew, steps)


def test_a_checkpoint_of_a_planner_is_cleared_where_it_is_listed(crew: Merges) -> None:
    alarm = AlarmRow("planners_checkpoint", "CHECKPOINT", "look at the taxes", "liza resume")
    picture = replace(look(crew.crew), waits=(alarm,))
    (offer,) = [offer for offer in offer_for_crew(picture) if offer.name is ActionName.RESUME]
    checkpoint(crew.crew, CheckpointRequest(why="look at the taxes"))
    assert act(crew.crew, offer, ()).is_done
