"""The board on a real disk, under its real lock, with real neighbours and real crashes."""

from __future__ import annotations

import fcntl
import gc
import io
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from ruamel.yaml import YAML

from liza.board import recorded_mark, revision_texts, revisions
from liza.board.contract import Transaction
from liza.board.file_store import commit_steps, revision_journal, write_intent
from liza.board.file_store.file_board import FileBoard
from liza.board.text import parse
from liza.model.errors import BoardInconsistent, BoardUnreadable, LockTimeout, NoCrew, Refused, WriteFailed
from liza.model.model import Agent, Event, Handoff, HumanNote, State, Status, Task
from liza.model.paths import Paths
from liza.system import proc_stat
from liza.system.locks import Lock
from tests.campaign.small_board import FIRST, texts_of, waiting_of
from tests.conftest import FakeClock, variant

replace = msgspec.structs.replace
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def board(paths: Paths, clock: FakeClock) -> FileBoard:
    made = FileBoard(paths, clock)
    made.create(FIRST)
    return made


def note(tx: Transaction, text: str) -> None:
    tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, HumanNote(timestamp=NOW, message=text)))


def priority(tx: Transaction, number: int, task: str = "t1") -> None:
    found = tx.state.task(task)
    assert found is not None
    tx.state = tx.state.with_task(replace(found, priority=number))


def forget_before(paths: Paths, revision: int) -> None:
    """Let the journal begin with ``revision``, as after a rotation."""
    lines = [
        replace(line, text=text, entries=()) if line.revision == revision else line
        for line, text in revision_texts.rebuild_texts(revision_journal.iter_lines(paths.journal))
        if line.revision >= revision
    ]
    paths.journal.write_bytes(b"".join(map(revisions.format_record, lines)))


def damage_line(paths: Paths, revision: int) -> None:
    """Make the line of a revision unreadable."""
    lines = paths.journal.read_bytes().splitlines(keepends=True)
    changed = [b"# lost\n" if f'"revision": {revision},'.encode() in line else line for line in lines]
    assert changed != lines
    paths.journal.write_bytes(b"".join(changed))


def say(board: FileBoard, text: str) -> None:
    with board.transaction("human", "note") as tx:
        note(tx, text)


def messages(state: State) -> list[str]:
    return [one.message for one in state.human_notes]


# ── a transaction ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_leaves_board_journal_and_write_intent_that_agree(board: FileBoard, paths: Paths) -> None:
    with board.transaction("coder-1.1", "claim", task="t1") as tx:
        tx.state = tx.state.with_task(
            replace(tx.state.tasks[0], status=Status.BLOCKED, blocked_reason="x", blocked_questions=("y",))
        )
    digest = revisions.sha(paths.state.read_bytes())
    last = revision_journal.last_record(paths.journal)
    assert last is not None
    assert (last.revision, last.task, last.from_, last.to, last.sha256) == (2, "t1", "UNCLAIMED", "BLOCKED", digest)
    assert [
        revisions.format_subject(record)
        for record in recorded_mark.list_waiting(paths, revision_journal.iter_newest_first(paths.journal))
    ] == [
        "init (human)",
        "t1: UNCLAIMED → BLOCKED (coder-1.1)",
    ]
    assert texts_of(paths)[2] == board.read_text()
    assert board.last_good_text() == board.read_text()
    assert (tx.revision, board.read().revision) == (2, 2)


def test_an_exception_writes_nothing_and_releases_the_lock(board: FileBoard, paths: Paths) -> None:
    before = board.read_text()

    def fails() -> None:
        with board.transaction("human", "note") as tx:
            note(tx, "never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert board.read_text() == before
    assert Lock(paths.state_lock).try_acquire()


def test_nothing_changed_is_nothing_written(board: FileBoard, paths: Paths) -> None:
    stat = paths.state.stat()
    with board.transaction("human", "note") as tx:
        tx.state = replace(tx.state)
    assert tx.revision is None
    assert (paths.state.stat().st_ino, revision_journal.highest_revision(paths.journal)) == (stat.st_ino, 1)


def test_a_change_is_refused_for_a_new_violation_only(board: FileBoard, paths: Paths) -> None:
    with pytest.raises(BoardInconsistent, match="t1"), board.transaction("human", "x", task="t1") as tx:
        tx.state = tx.state.with_task(replace(tx.state.tasks[0], depends_on=("t1",)))
    assert board.read().revision == 1
    paths.state.write_text(board.read_text().replace('  - id: "t2"\n', '  - id: "t2"\n    depends_on: [nowhere]\n'))
    say(board, "the rest goes on")
    with board.transaction("human", "x") as tx:
        priority(tx, 1, "t2")
    assert board.read().revision == 4


def test_a_transaction_inside_a_transaction_is_a_programming_error(board: FileBoard) -> None:
    with board.transaction("human", "note"), pytest.raises(RuntimeError), board.transaction("human", "note"):
        pass
    say(board, "later")


def test_a_heartbeat_is_no_revision_and_history_can_be_rebuilt(board: FileBoard, paths: Paths) -> None:
    say(board, "one")
    with board.heartbeat("coder-1") as tx:
        tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], heartbeat=NOW))
    assert board.read().revision == 2
    assert (revision_journal.highest_revision(paths.journal), waiting_of(paths)) == (2, [1, 2])
    assert FileBoard(paths, FakeClock()).read().agents["coder-1"].heartbeat == NOW
    with board.transaction("human", "prio", task="t1") as tx:
        priority(tx, 1)
    assert texts_of(paths)[3] == board.read_text()


def test_recorded_revisions_leave_the_journal_and_the_rest_is_rebuilt(board: FileBoard, paths: Paths) -> None:
    for number in range(4):
        say(board, f"{number}")
    recorded_mark.write_mark(paths, 3)
    forget_before(paths, 3)
    assert waiting_of(paths) == [4, 5]
    assert [*texts_of(paths)] == [3, 4, 5]
    assert board.last_good_text() == board.read_text()


def test_second_board_is_refused_and_a_missing_crew_is_named(board: FileBoard, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        board.create(FIRST)
    with pytest.raises(NoCrew):
        FileBoard(Paths(tmp_path / "elsewhere"), FakeClock()).read()


def test_the_whole_text_can_be_replaced_unless_it_breaks_rules(board: FileBoard) -> None:
    board.replace_text("human", board.read_text().replace("The first", "The very first"))
    assert board.read().revision == 2
    with pytest.raises(BoardInconsistent):
        board.replace_text("human", board.read_text().replace("scope: all", "depends_on: [nowhere]", 1))
    with pytest.raises(BoardUnreadable):
        board.replace_text("human", "tasks: [")
    assert board.read().tasks[0].description == "The very first"


# ── edits from outside ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_outside_edit_gets_a_revision_with_its_whole_text(board: FileBoard, paths: Paths) -> None:
    paths.state.write_text(board.read_text().replace("The first", "The first, by hand"))
    other = FileBoard(paths, FakeClock())
    assert other.read().tasks[0].description == "The first, by hand"
    last = revision_journal.last_record(paths.journal)
    assert last is not None
    assert (last.revision, last.event) == (2, "external_edit")
    assert [alert.kind for alert in other.take_alerts()] == ["external_edit"]
    assert other.take_alerts() == []
    assert texts_of(paths)[2] == other.read_text()


def test_an_outside_edit_against_the_arrows_counts_with_an_alert(board: FileBoard, paths: Paths) -> None:
    paths.state.write_text(board.read_text().replace("UNCLAIMED # a comment", "MERGED # a comment"))
    assert board.read().tasks[0].status is Status.MERGED
    assert any("UNCLAIMED" in alert.message and "t1" in alert.message for alert in board.take_alerts())


def test_a_truncated_board_is_waited_for_and_never_overwritten(board: FileBoard, paths: Paths) -> None:
    whole = board.read_text()
    cut = whole[: whole.index('  - id: "t2"')]
    paths.state.write_text(cut)
    with pytest.raises(BoardInconsistent, match="end of"), board.transaction("human", "note") as tx:
        note(tx, "never")
    assert paths.state.read_text() == cut
    assert any(alert.kind == "torn" for alert in board.take_alerts())
    board.replace_text("human", board.last_good_text(), "restore")
    assert len(board.read().tasks) == 2
    assert list(paths.tx.glob("broken-*"))


def as_json(text: str) -> str:
    return json.dumps(parse.parse_text(text), indent=1)


def in_flow(text: str) -> str:
    return json.dumps(parse.parse_text(text))


def with_flow_sections(text: str) -> str:
    return "".join(
        f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in parse.parse_text(text).items()
    )


def sorted_without_comments(text: str) -> str:
    out, yaml = io.StringIO(), YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(dict(sorted(parse.parse_text(text).items())), out)
    return out.getvalue()


def with_wide_indents(text: str) -> str:
    out, yaml = io.StringIO(), YAML()
    yaml.indent(mapping=4, sequence=6, offset=4)
    yaml.dump(yaml.load(text), out)
    return out.getvalue()


def with_quoted_keys(text: str) -> str:
    return re.sub(r"^(\w+):", r'"\1":', text, flags=re.MULTILINE)


def between_document_marks(text: str) -> str:
    return f"%YAML 1.2\n---\n{text}...\n"


def without_the_last_line_end(text: str) -> str:
    return text.rstrip()


def with_windows_line_ends(text: str) -> str:
    return text.replace("\n", "\r\n")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "reformat",
    [
        as_json,
        sorted_without_comments,
        between_document_marks,
        with_windows_line_ends,
        *map(
            variant,
            [in_flow, with_flow_sections, with_wide_indents, with_quoted_keys, without_the_last_line_end],
        ),
    ],
    ids=lambda reformat: reformat.__name__,
)
def test_a_reformatted_board_is_kept_and_a_cut_one_refused(
    board: FileBoard, paths: Paths, reformat: Callable[[str], str]
) -> None:
    with board.transaction("coder-1", "claim", task="t1") as tx:
        note(tx, "worth keeping: \U0001f600\U0001f600 \\\\ud83d")
        tx.state = replace(tx.state, handoff={"t1": Handoff(agent="coder-1", summary="half", next_action="the rest")})
    whole, text = board.read(), reformat(board.read_text())

    def data(state: State) -> State:
        return replace(state, revision=0)

    bytes_of = {path: path.read_bytes() for path in (paths.journal, paths.write_intent)}
    for length in [*itertools.accumulate(map(len, text.splitlines(keepends=True))), len(text) - 1][::-1]:
        for path, content in bytes_of.items():
            path.write_bytes(content)
        paths.state.write_text(text[:length], newline="")
        os.utime(paths.state, (1, 1))
        other = FileBoard(paths, FakeClock())
        try:
            assert data(other.read()) == data(whole), text[:length]
        except BoardInconsistent:
            assert length < len(text)
    paths.state.write_text(text, newline="")
    say(other, "afterwards")
    assert messages(FileBoard(paths, FakeClock()).read()) == [*messages(whole), "afterwards"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["", "tasks: [", "\xff"])
def test_an_unparsable_board_blocks_all_until_last_good_restores_it(board: FileBoard, paths: Paths, text: str) -> None:
    say(board, "worth keeping")
    paths.state.write_bytes(text.encode("latin-1"))
    with pytest.raises(BoardUnreadable, match=r"state\.yaml") as caught:
        board.read()
    assert "restore" in caught.value.hint
    with pytest.raises(BoardUnreadable):
        say(board, "never")
    assert paths.state.read_bytes() == text.encode("latin-1")
    other = FileBoard(paths, FakeClock())
    other.replace_text("human", other.last_good_text(), "restore")
    assert messages(other.read()) == ["worth keeping"]
    assert board.read().revision == 3


def test_after_a_damaged_line_the_next_whole_text_is_used(board: FileBoard, paths: Paths) -> None:
    for message in ("one", "two", "three"):
        say(board, message)
    damage_line(paths, 3)
    assert [*texts_of(paths)] == [1, 2]
    board.replace_text("human", board.read_text().replace("The first", "The very first"))
    say(board, "four")
    assert [*texts_of(paths)] == [1, 2, 5, 6]
    paths.state.unlink()
    other = FileBoard(paths, FakeClock())
    assert other.restore("human", other.last_good_text)
    assert messages(other.read()) == ["one", "two", "three", "four"]


def test_the_revision_after_a_lost_journal_end_is_kept_whole(board: FileBoard, paths: Paths) -> None:
    for message in ("one", "two", "three"):
        say(board, message)
    paths.journal.write_bytes(b"".join(paths.journal.read_bytes().splitlines(keepends=True)[:-1]))
    for message in ("four", "five"):
        say(board, message)
    assert [*texts_of(paths)] == [1, 2, 3, 5, 6]
    paths.journal.unlink()
    say(board, "six")
    assert texts_of(paths) == {7: board.read_text()}


def test_a_line_has_the_whole_text_only_where_needed(
    board: FileBoard, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for message in ("one", "two", "three"):
        say(board, message)
    # The first note has the whole text, too: the board had no section for it.
    assert [line.text is None for line in revision_journal.iter_lines(paths.journal)] == [True, True, False, False]
    monkeypatch.setattr(revision_texts, "FULL_TEXT_INTERVAL", 5)
    say(board, "four")
    assert next(revision_journal.iter_lines(paths.journal)).text == board.read_text()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("step", "after"),
    [("write_journal", True), ("record_intent", True)],
)
@pytest.mark.parametrize("left", [variant(None), variant(""), "tasks:"])
def test_a_restoration_killed_at_any_step_can_be_repeated(
    board: FileBoard, paths: Paths, step: str, after: bool, left: str | None
) -> None:
    say(board, "one")
    if left is None:
        paths.state.unlink()
    else:
        paths.state.write_text(board.read_text().partition(left)[0] if left else "")
    first = FileBoard(paths, FakeClock())
    killed(lambda: first.restore("human", first.last_good_text), step, after)
    other = FileBoard(paths, FakeClock())
    with pytest.raises(BoardInconsistent):
        other.read()
    assert other.restore("human", other.last_good_text)
    assert messages(other.read()) == ["one"]
    kept = sorted(record.revision for record in revision_journal.iter_newest_first(paths.journal))
    assert kept == [1, 2, 4]
    assert [*texts_of(paths)] == kept


@pytest.mark.campaign
def test_an_interrupted_change_on_a_board_destroyed_since_never_came(board: FileBoard, paths: Paths) -> None:
    say(board, "one")
    killed(lambda: say(FileBoard(paths, FakeClock()), "killed"), "record_intent", True)
    paths.state.write_text("")
    other = FileBoard(paths, FakeClock())
    assert other.restore("human", other.last_good_text)
    assert messages(other.read()) == ["one"]
    assert sorted(record.revision for record in revision_journal.iter_newest_first(paths.journal)) == [1, 2, 4]


def test_a_board_written_slowly_after_truncation_is_read_when_complete(board: FileBoard, paths: Paths) -> None:
    text = board.read_text().replace("The first", "The slow first")
    script = (
        "import sys,time,pathlib; f=open(sys.argv[1],'w'); f.flush(); time.sleep(0.3); f.write(sys.argv[2]); f.close()"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(paths.state), text])
    while paths.state.stat().st_size:
        pass
    assert board.read().tasks[0].description == "The slow first"
    assert child.wait() == 0


def test_writing_back_an_old_copy_reverts_no_crew_changes(board: FileBoard, paths: Paths) -> None:
    old = board.read_text()
    with board.transaction("coder-1.1", "block", task="t1") as tx:
        tx.state = tx.state.with_task(
            replace(tx.state.tasks[0], status=Status.BLOCKED, blocked_reason="x", blocked_questions=("y",))
        )
        tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], runs=5))
        tx.state = replace(tx.state, tasks=(*tx.state.tasks, replace(tx.state.tasks[1], id="t3")))
    say(board, "a note")
    paths.state.write_text(old.replace("The second", "The second, by hand").replace("The first", "The first, by hand"))
    state = board.read()
    assert [(task.id, task.status.value) for task in state.tasks] == [
        ("t1", "BLOCKED"),
        ("t2", "UNCLAIMED"),
        ("t3", "UNCLAIMED"),
    ]
    assert [task.description for task in state.tasks[:2]] == ["The first, by hand", "The second, by hand"]
    assert (state.agents["coder-1"].runs, messages(state), state.revision) == (5, ["a note"], 4)
    assert any("2, 3" in alert.message for alert in board.take_alerts())
    last = revision_journal.last_record(paths.journal)
    assert last is not None
    assert last.overwrote == (2, 3)


@pytest.mark.parametrize("kept", [True, False], ids=["its own revision is in the journal", "it is in the history"])
def test_a_cut_old_copy_removes_no_entries_and_no_events(board: FileBoard, paths: Paths, kept: bool) -> None:
    """An editor that saves an old buffer and dies of it, or a disk that was full: at every line it may have stopped."""
    with board.transaction("coder-1", "claim", task="t1") as tx:
        event = Event(time=NOW, event="claim", agent="coder-1", run="coder-1.1")
        tasks = tuple(replace(task, history=(event, replace(event, event="resume"))) for task in tx.state.tasks)
        tx.state = replace(tx.state, tasks=tasks, config=replace(tx.state.config, grace=7))
        tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], runs=5))
    old = board.read_text()
    say(board, "first")
    with board.transaction("planner-1", "task add", task="t3") as tx:
        tx.state = replace(tx.state, tasks=(*tx.state.tasks, replace(tx.state.tasks[1], id="t3")))
    known = board.read()
    if not kept:
        forget_before(paths, 3)
    bytes_of = {file: file.read_bytes() for file in (paths.write_intent, paths.journal)}
    lines = old.splitlines(keepends=True)
    for number in range(5, len(lines)):
        for file, data in bytes_of.items():
            file.write_bytes(data)
        paths.state.write_text("".join(lines[:number]))
        os.utime(paths.state, (1, 1))
        fresh = FileBoard(paths, FakeClock())
        try:
            state = fresh.read()
        except (BoardUnreadable, BoardInconsistent):
            continue
        assert {task.id for task in state.tasks} == {"t1", "t2", "t3"}, number
        assert [task.history for task in state.tasks] == [task.history for task in known.tasks], number
        assert state.agents == known.agents, number
        assert (state.config, messages(state)) == (known.config, ["first"]), number


def test_a_board_cut_off_inside_an_entry_is_torn(board: FileBoard, paths: Paths) -> None:
    with board.transaction("coder-1", "claim", task="t1") as tx:
        tx.state = replace(tx.state, config=replace(tx.state.config, grace=7))
        tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], runs=5))
        tx.state = tx.state.with_agent("coder-2", Agent(role="coder", status="IDLE", runs=6))
    with board.heartbeat("coder-1") as tx:
        tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], heartbeat=NOW))
    known, lines = board.read(), board.read_text().splitlines(keepends=True)
    for number in range(5, len(lines)):
        paths.state.write_text("".join(lines[:number]))
        os.utime(paths.state, (1, 1))
        try:
            state = FileBoard(paths, FakeClock()).read()
        except (BoardUnreadable, BoardInconsistent):
            continue
        assert {name: agent.runs for name, agent in state.agents.items()} == {"coder-1": 5, "coder-2": 6}, number
        assert (state.config, len(state.tasks)) == (known.config, 2), number


def test_writing_back_the_previous_board_removes_nothing_acknowledged(board: FileBoard, paths: Paths) -> None:
    old = paths.state.read_bytes()
    with board.transaction("coder-1.1", "block", task="t1") as tx:
        tx.state = tx.state.with_task(
            replace(tx.state.tasks[0], status=Status.BLOCKED, blocked_reason="x", blocked_questions=("y",))
        )
    paths.state.write_bytes(old)
    other = FileBoard(paths, FakeClock())
    assert other.read().tasks[0].status is Status.BLOCKED
    assert any("overwrote revision 2" in alert.message for alert in other.take_alerts())
    assert [record.void for record in revision_journal.iter_newest_first(paths.journal) if record.void] == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_journal_without_beginning_or_end_is_rebuilt(board: FileBoard, paths: Paths, cut: int) -> None:
    old = board.read_text()
    with board.transaction("coder-1.1", "block", task="t1") as tx:
        tx.state = tx.state.with_task(
            replace(tx.state.tasks[0], status=Status.BLOCKED, blocked_reason="x", blocked_questions=("y",))
        )
    say(board, "a note")
    forget_before(paths, 3)
    kept = paths.journal.read_bytes().splitlines(keepends=True)
    paths.journal.write_bytes(b"".join(kept[: len(kept) - cut]))
    paths.state.write_text(old.replace("The first", "The first, by hand"))
    state = board.read()
    assert (state.tasks[0].status, state.tasks[0].description) == (Status.BLOCKED, "The first, by hand")
    assert messages(state) == ["a note"]


def test_a_lost_seal_is_made_again_from_the_journal(board: FileBoard, paths: Paths) -> None:
    say(board, "one")
    paths.write_intent.write_text("{")
    other = FileBoard(paths, FakeClock())
    assert other.read().revision == 2
    assert other.take_alerts() == []
    assert write_intent.read_intent(paths.write_intent) is not None


def test_a_board_written_by_hand_is_taken_over(paths: Paths, clock: FakeClock) -> None:
    paths.tx.mkdir(parents=True)
    paths.state.write_text(FIRST)
    board = FileBoard(paths, clock)
    assert board.read().revision == 2
    say(board, "on")
    assert board.read().revision == 3


# ── kill -9 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

STEPS = ("write_next_board", "write_journal", "record_intent", "rename_board", "fsync_directory")


def killed(work: Callable[[], object], step: str, after: bool) -> None:
    """Does the work in a child that is killed just before or after a step."""
    pid = os.fork()
    if pid == 0:
        real = getattr(commit_steps, step)

        def deadly(*words: object) -> object:
            if after:
                real(*words)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(commit_steps, step, deadly)
        try:
            work()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


@pytest.mark.sample(4)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_revision_killed_at_any_step_is_whole_or_absent(
    board: FileBoard, paths: Paths, step: str, after: bool
) -> None:
    say(board, "first")
    with board.heartbeat("coder-1") as tx:
        tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], heartbeat=NOW))
    killed(lambda: say(FileBoard(paths, FakeClock()), "killed"), step, after)
    happened = (step, after) in {("rename_board", True), ("fsync_directory", False), ("fsync_directory", True)}
    expected = ["first", "killed"] if happened else ["first"]
    other = FileBoard(paths, FakeClock())
    assert messages(other.read()) == expected
    say(other, "after")
    assert messages(other.read()) == [*expected, "after"]
    assert other.take_alerts() == []
    kept = {record.revision for record in revision_journal.iter_newest_first(paths.journal)}
    assert kept == {*texts_of(paths)}
    assert next(revision_journal.iter_newest_first(paths.journal)).event == "note"
    assert texts_of(paths)[other.read().revision] == other.read_text()


@pytest.mark.sample(4)
@pytest.mark.parametrize("step", ["record_intent", "write_next_board", "rename_board"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_heartbeat_killed_at_any_step_voids_no_revision(
    board: FileBoard, paths: Paths, step: str, after: bool, earlier: int
) -> None:
    say(board, "first")

    def beat(number: int) -> None:
        with FileBoard(paths, FakeClock()).heartbeat("coder-1") as tx:
            tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], context_percent=number))

    for number in range(earlier):
        beat(number + 1)
    killed(lambda: beat(50), step, after)
    say(board, "after")
    assert messages(board.read()) == ["first", "after"]
    assert [record.revision for record in revision_journal.iter_newest_first(paths.journal)] == [3, 2, 1]
    assert texts_of(paths)[3] == board.read_text()
    assert board.take_alerts() == []


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_killed_creation_of_the_first_board_can_be_repeated(paths: Paths, clock: FakeClock, step: str) -> None:
    killed(lambda: FileBoard(paths, clock).create(FIRST), step, after=False)
    board = FileBoard(paths, clock)
    board.create(FIRST)
    assert len(board.read().tasks) == 2
    assert [*texts_of(paths)] == [board.read().revision]


def test_a_first_board_is_numbered_above_existing_history(paths: Paths, clock: FakeClock) -> None:
    board = FileBoard(paths, clock)
    board.create(FIRST, above=41)
    say(board, "on")
    assert [record.revision for record in revision_journal.iter_newest_first(paths.journal)] == [43, 42]
    assert [*texts_of(paths)] == [42, 43]
    assert board.last_good_text() == board.read_text()


def test_a_torn_line_at_the_journals_end_becomes_a_comment(board: FileBoard, paths: Paths) -> None:
    with paths.journal.open("a") as file:
        file.write('- {"revision": 2, "time": "2026')
    say(board, "after")
    assert "# torn: - {" in paths.journal.read_text()
    assert [record.revision for record in revision_journal.iter_newest_first(paths.journal)] == [2, 1]


def test_a_revision_that_failed_before_an_outside_edit_is_voided(
    board: FileBoard, paths: Paths, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(board, "before")

    def fail(*_: object) -> None:
        raise WriteFailed("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(commit_steps, "record_intent", fail)
        with pytest.raises(WriteFailed):
            say(board, "lost")
    edited = paths.state.with_suffix(".edited")
    edited.write_text(paths.state.read_text().replace("before", "changed"))
    edited.replace(paths.state)
    say(FileBoard(paths, clock), "after")
    kept = [record.revision for record in revision_journal.iter_newest_first(paths.journal)]
    assert kept == [5, 4, 2, 1]
    assert [*texts_of(paths)] == [1, 2, 4, 5]


def test_an_edit_of_an_old_copy_voids_no_committed_revision(board: FileBoard, paths: Paths) -> None:
    say(board, "one")
    old = paths.state.read_text()
    say(board, "two")
    edited = paths.state.with_suffix(".edited")
    edited.write_text(old.replace("The first", "The edited"))
    edited.replace(paths.state)
    say(FileBoard(paths, FakeClock()), "after")
    assert [record.revision for record in revision_journal.iter_newest_first(paths.journal)] == [5, 4, 3, 2, 1]


def test_a_half_written_comment_on_a_torn_line_loses_nothing(
    board: FileBoard, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paths.journal.open("a") as file:
        file.write('- {"revision": 2, "time": "2026-')
    no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def have_room(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)

    # The file cannot grow, as on a full disk, until the line was made a comment: then another process freed a block.
    monkeypatch.setattr(revision_journal.crash_points, "point", have_room)
    resource.setrlimit(resource.RLIMIT_FSIZE, (paths.journal.stat().st_size, no_limit[1]))
    written = [1]
    try:
        revision_journal.append_record(paths.journal, revisions.RevisionRecord(revision=2))
        written.append(2)
    except WriteFailed:
        pass
    finally:
        have_room()
    revision_journal.append_record(paths.journal, revisions.RevisionRecord(revision=3))
    kept = [record.revision for record in revision_journal.iter_newest_first(paths.journal)]
    assert kept == [3, *reversed(written)]


def test_the_end_of_a_long_journal_is_read_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    records = [
        revisions.RevisionRecord(number, actor="x" * (number * 37 % 20000), sha256="é") for number in range(1, 60)
    ]
    path.write_bytes(b"# a head\n" + b"".join(map(revisions.format_record, records)))
    assert [record.revision for record in revision_journal.iter_newest_first(path)] == list(range(59, 0, -1))
    revision_journal.append_record(path, revisions.RevisionRecord(void=59))
    assert revision_journal.last_record(path) == records[-2]
    assert revision_journal.highest_revision(path) == 59


# ── neighbours ───────────────────────────────────────────────────────────────────────────────────────────────────────

WRITER = """
    import sys
    from pathlib import Path
    import msgspec
    from liza.board.file_store.file_board import FileBoard
    from liza.model.model import HumanNote
    from liza.model.paths import Paths
    from tests.conftest import FakeClock
    board = FileBoard(Paths(Path(sys.argv[1])), FakeClock())
    for number in range(int(sys.argv[3])):
        with board.transaction(sys.argv[2], "note") as tx:
            one = HumanNote(timestamp=FakeClock().now(), message=f"{sys.argv[2]} {number}")
            tx.state = msgspec.structs.replace(tx.state, human_notes=(*tx.state.human_notes, one))
"""
EDITOR = """
    import fcntl, re, sys
    for number in range(4, 8):
        with open(sys.argv[1] + ".lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = open(sys.argv[1]).read()
            text = re.sub("\\n    scope: .*", "\\n    scope: edit " + str(number), text, count=1)
            open(sys.argv[1], "w").write(text)
"""
YQ = """
    import subprocess, sys
    told = subprocess.run(["yq", "--help"], capture_output=True, text=True).stdout
    words = ["-y"] if "jq wrapper" in told else []
    for number in (21, 22):
        change = f".config.grace = {number}"
        subprocess.run(["flock", sys.argv[1] + ".lock", "yq", "-i", *words, change, sys.argv[1]], check=True)
"""


def started(script: str, *words: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[3]
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), *words], cwd=root)


@pytest.mark.campaign
@pytest.mark.needs("yq")
def test_four_processes_and_editors_under_flock_lose_nothing(board: FileBoard, paths: Paths) -> None:
    writers = [started(WRITER, str(paths.root), f"w{number}", "50") for number in range(4)]
    editors = [started(EDITOR, str(paths.state)), started(YQ, str(paths.state))]
    assert [child.wait() for child in (*writers, *editors)] == [0] * 6
    state = board.read()
    said = messages(state)
    assert sorted(said) == sorted(f"w{writer} {number}" for writer in range(4) for number in range(50))
    for writer in range(4):
        own = [text for text in said if text.startswith(f"w{writer}")]
        assert own == [f"w{writer} {number}" for number in range(50)]
    assert state.tasks[0].scope == "edit 7"
    assert state.config.grace == 22
    records = list(revision_journal.iter_newest_first(paths.journal))
    assert [record.revision for record in records] == list(range(state.revision, 0, -1))
    assert {record.event for record in records} == {"init", "note", "external_edit"}
    texts = texts_of(paths)
    assert len(texts) == state.revision
    assert [revisions.sha(text.encode()) for text in texts.values()] == [record.sha256 for record in records[::-1]]


@pytest.mark.campaign
def test_a_reader_among_writers_never_sees_less_than_it_saw(board: FileBoard, paths: Paths) -> None:
    writers = [started(WRITER, str(paths.root), f"w{number}", "30") for number in range(2)]
    seen = 0
    while any(child.poll() is None for child in writers):
        state = board.read()
        assert len(state.tasks) == 2
        assert len(state.human_notes) == state.revision - 1 >= seen
        seen = len(state.human_notes)
    assert [child.returncode for child in writers] == [0, 0]
    assert board.read().revision == 61
    assert board.take_alerts() == []


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def some_lock(tmp_path: Path) -> Callable[[], Lock]:
    """Makes locks on one file."""
    return lambda: Lock(tmp_path / "some.lock")


def test_a_lock_timeout_names_its_holder(tmp_path: Path, some_lock: Callable[[], Lock]) -> None:
    child = subprocess.Popen(
        ["flock", str(tmp_path / "some.lock"), "sh", "-c", "echo held; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    lock = some_lock()
    with pytest.raises(LockTimeout, match=rf"process {child.pid} .*flock") as caught:
        lock.acquire(timeout=0.05)
    assert caught.value.exit_code == 75
    assert not lock.try_acquire()
    child.communicate(b"\n")
    with lock:
        assert lock.is_locked
    assert not lock.is_locked


def test_a_waiter_that_gave_up_does_not_keep_the_lock(some_lock: Callable[[], Lock]) -> None:
    holder, impatient, patient = some_lock(), some_lock(), some_lock()
    holder.acquire()
    with pytest.raises(LockTimeout):
        impatient.acquire(timeout=0.05)
    holder.release()
    patient.acquire(timeout=10)
    patient.release()


def test_a_lock_that_was_taken_twice_is_released_twice(some_lock: Callable[[], Lock]) -> None:
    lock, other = some_lock(), some_lock()
    with lock, lock.acquire(timeout=1) as again:
        assert again is lock
        lock.acquire()
        lock.release()
        assert not other.try_acquire()
    assert other.try_acquire()
    lock.release()
    assert not lock.is_locked
    with pytest.raises(Refused, match="is not held"):
        _ = lock.descriptor


def test_a_lock_is_not_held_by_another_thread(some_lock: Callable[[], Lock]) -> None:
    lock = some_lock()
    taken: list[bool] = []
    with lock:
        thread = threading.Thread(target=lambda: taken.append(lock.try_acquire()))
        thread.start()
        thread.join()
    assert taken == [False]


def test_an_unnamed_lock_is_free(some_lock: Callable[[], Lock]) -> None:
    some_lock().acquire()
    gc.collect()
    assert some_lock().try_acquire()


def test_an_equal_inode_on_another_disk_names_no_lock_holder(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.touch()
    with theirs.open("w") as file:
        assert proc_stat.holds_flock(os.getpid(), os.fstat(file.fileno()), proc_stat.ANY_MODE) is False
        fcntl.flock(file, fcntl.LOCK_EX)
        assert proc_stat.holds_flock(os.getpid(), os.fstat(file.fileno()), proc_stat.ANY_MODE)
        assert proc_stat.holds_flock(os.getpid(), ours.stat(), proc_stat.ANY_MODE) is False


def test_the_holder_that_died_leaves_no_lock(board: FileBoard, paths: Paths) -> None:
    pid = os.fork()
    if pid == 0:
        with FileBoard(paths, FakeClock()).transaction("human", "x"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    say(board, "mine")


def test_agents_and_tasks_of_the_model_can_all_be_added(board: FileBoard) -> None:
    with board.transaction("human", "add") as tx:
        tx.state = tx.state.with_agent("planner-1", Agent(role="planner", status="IDLE"))
        tx.state = replace(tx.state, tasks=(*tx.state.tasks, Task(id="t3", status=Status.DRAFT)))
    assert board.read().tasks[2].id == "t3"
