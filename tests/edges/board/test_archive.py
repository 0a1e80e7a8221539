"""The archive on a real disk: kills at every point of a move, edits by hand, and what is still known of its tasks."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.board import archived_entries
from liza.board.file_store import archive_files
from liza.board.text import document
from liza.crew import recorder
from liza.git import board_history
from liza.model import invariants
from liza.model.errors import BoardInconsistent, Refused, UnknownId, UsageError
from liza.model.model import Event, Status, Task
from liza.model.paths import Paths
from liza.model.transitions import Invocation
from liza.recovery import findings
from liza.recovery import restore as restore_verb
from liza.recovery import validate as validate_verb
from liza.system.clock import SystemClock
from liza.tasks import archive
from liza.tasks import task as task_verb
from liza.tasks.rules import backlog, picking
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.view import status as status_verb
from tests.campaign.small_board import FIRST, check, child, crew_of, killed, opened, passed, repository, say
from tests.conftest import git

ME = "human:me"
OLD = FIRST.replace("    scope: all\n", "    scope: all\n    colour: blue # of people\n", 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A crew with an open task t2 and a dropped task t1, with a comment and a field of people's own."""
    root = tmp_path / "p"
    repository(root)
    opened(root).create(OLD)
    close(root, "t1")
    return root


def close(root: Path, *ids: str) -> None:
    with crew_of(root).change(ME, "drop") as tx:
        for task_id in ids:
            tx.state = backlog.drop(
                tx.state, task_id, Invocation(now=SystemClock().now(), by=ME, detail="no"), "unlink"
            )


def merged(root: Path, task_id: str) -> None:
    """Make a task merged, as if everything before had been done."""
    with crew_of(root).change(ME, "test") as tx:
        task = tx.state.task(task_id)
        assert task is not None
        now = SystemClock().now()
        done = Event(time=now, event="approve", agent="code-reviewer-1")
        tx.state = tx.state.with_task(
            replace(
                task,
                status=Status.MERGED,
                merge_commit="a" * 40,
                review_commit="b" * 40,
                approved_by="code-reviewer-1",
                history=(*task.history, done),
            )
        )


def add(root: Path, task_id: str, *needs: str) -> None:
    crew = crew_of(root)
    with crew.change(ME, "add", task_id) as tx:
        fields = TaskFields(task_id, "d", "w", "s", "specs/a.md", depends_on=needs)
        archived = archive.find_outcomes(crew.board, tx.state, (task_id, *needs))
        context = RequestContext(Invocation(now=crew.clock.now(), by=ME), frozenset({"specs/a.md"}), archived)
        tx.state = backlog.add(tx.state, [fields], context)


def move(root: Path) -> tuple[str, ...]:
    return archive.archive_closed(crew_of(root), ME)


def in_files(root: Path) -> list[str]:
    """The ids in the files of the archive, read by nothing but the parser of the files."""
    paths = Paths(root)
    names = archive_files.list_names(paths)
    return [task_id for name in names for task_id, _ in archived_entries.split_text((paths.archive / name).read_text())]


def archived(root: Path) -> list[str]:
    """The ids in the files that the board does not have: what the board has is not archived."""
    board = on_board(root)
    return [task_id for task_id in in_files(root) if task_id not in board]


def on_board(root: Path) -> list[str]:
    return [task.id for task in opened(root).read().tasks]


def known(root: Path, task_id: str) -> Task:
    crew = crew_of(root)
    task = archive.find_task(crew.board, crew.board.read(), task_id)
    assert task is not None
    return task


def the_file(root: Path) -> Path:
    [name] = archive_files.list_names(Paths(root))
    return Paths(root).archive / name


# ── a move ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_entry_moves_with_its_comments_and_peoples_own_fields(root: Path) -> None:
    assert move(root) == ("t1",)
    assert on_board(root) == ["t2"]
    assert in_files(root) == ["t1"]
    text = the_file(root).read_text()
    assert "    status: ABANDONED # a comment\n" in text
    assert "    colour: blue # of people\n" in text
    assert invariants.check_board(check(root)) == ()
    assert move(root) == ()


def test_an_empty_board_can_be_read_and_gets_new_tasks(root: Path) -> None:
    close(root, "t2")
    assert move(root) == ("t1", "t2")
    assert on_board(root) == []
    add(root, "t3", "t1")
    assert on_board(root) == ["t3"]
    check(root)


@pytest.mark.parametrize("indent", ["", "    "])
def test_entries_of_any_indentation_and_line_end_are_moved(root: Path, indent: str) -> None:
    state = Paths(root).state
    lines = opened(root).read_text().split("\n")
    inside, text = False, []
    for line in lines:
        inside = line.startswith("tasks:") or (inside and (line.startswith(" ") or not line))
        text.append(indent + line[2:] if inside and line.startswith("  ") else line)
    opened(root).replace_text(ME, "\r\n".join(text))
    assert move(root) == ("t1",)
    assert known(root, "t1").description == "The first"
    assert "# a comment" in the_file(root).read_text()
    assert state.read_bytes().count(b"\r\n") > 5


def test_a_board_on_one_line_is_refused_with_a_reason(root: Path) -> None:
    state = opened(root).read()
    tasks = ", ".join(
        f"{{id: {task.id}, status: {task.status}, description: d, done_when: d, scope: d, spec_ref: d}}"
        for task in state.tasks
    )
    head, _, rest = opened(root).read_text().partition("tasks:")
    agents = rest[rest.index("agents:") :]
    opened(root).replace_text(ME, f"{head}tasks: [{tasks}]\n{agents}")
    with pytest.raises(Refused, match="moved as text"):
        move(root)
    assert on_board(root) == ["t1", "t2"]


def test_a_full_archive_file_is_followed_by_another(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "MAX_FILE_SIZE", 300)
    move(root)
    close(root, "t2")
    move(root)
    names = archive_files.list_names(Paths(root))
    assert len(names) == 2
    assert names[1] == names[0].replace(".yaml", ".2.yaml")
    assert in_files(root) == ["t1", "t2"]
    assert known(root, "t2").status is Status.ABANDONED


def test_a_task_stays_on_the_board_until_its_session_ends(root: Path) -> None:
    with crew_of(root).change(ME, "test") as tx:
        agent = replace(tx.state.agents["coder-1"], runs=3)
        task = tx.state.tasks[0]
        now = SystemClock().now()
        worked = replace(task, history=(*task.history, Event(time=now, event="note", run="coder-1.3")))
        tx.state = tx.state.with_agent("coder-1", agent).with_task(worked)
    directory = crew_of(root).run_dir("coder-1.3")
    directory.path.mkdir(parents=True)
    assert move(root) == ()
    directory.mark_concluded("done")
    assert move(root) == ("t1",)


# ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────────


def assert_in_one_place(root: Path) -> None:
    """Before and after the next process has repaired what is left, t1 is known and in one place."""
    board, files = on_board(root), in_files(root)
    assert known(root, "t1").status is Status.ABANDONED
    assert "t1" in board or "t1" in files
    say(opened(root), "next")
    assert (on_board(root) + archived(root)).count("t1") == 1
    state = check(root)
    assert invariants.check_board(state) == ()
    assert state.archived.total == archived(root).count("t1")
    assert list(archive.find_faults(opened(root), state)) == []


@pytest.mark.campaign
def test_a_killed_move_leaves_every_task_in_exactly_one_file(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: move(copy), tmp_path / "trace")
    assert in_files(copy) == ["t1"]
    assert {f"renamed.{the_file(copy).name}#1", "renamed.state.yaml#1"} <= set(points)
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: move(copy), point)), point
        assert_in_one_place(copy)
        move(copy)
        assert on_board(copy) == ["t2"], point
        assert in_files(copy) == ["t1"], point


@pytest.mark.campaign
def test_a_move_on_a_full_disk_keeps_every_task_once(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    for point in passed(lambda: move(copy), tmp_path / "trace"):
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert child(lambda: move(copy), f"{point}:full") in (0, 4, 98), point
        assert_in_one_place(copy)


def test_restoring_one_task_of_an_interrupted_move_loses_no_other(root: Path) -> None:
    close(root, "t2")
    copy = Paths(root).state.read_text()
    assert killed(child(lambda: move(root), "fsynced.state.yaml#1"))
    edited = copy.replace("colour: blue", "colour: red").replace("description: ", "description: new ", 1)
    Paths(root).state.write_text(edited)
    os.utime(Paths(root).state, (time.time() - 60,) * 2)
    say(opened(root), "next")
    assert set(on_board(root)) | set(in_files(root)) == {"t1", "t2"}
    assert len(on_board(root)) == 1


@pytest.mark.parametrize("point", ["fsynced.state.yaml#1", "renamed.state.yaml#1", "synced.next#1"])
def test_history_includes_the_files_of_a_killed_move(root: Path, point: str) -> None:
    assert killed(child(lambda: move(root), point))
    crew = crew_of(root)
    recorder.record_history(crew)
    newest = board_history.read_newest(crew.git)
    assert newest is not None
    recorded = b"".join(board_history.read_archive_file(crew.git, name) or b"" for name in in_history(root))
    assert [task_id for task_id in ("t1", "t2") if f'id: "{task_id}"' in newest[1]] == on_board(root)
    assert recorded.count(b'id: "t1"') == len(in_files(root)) == 1


def in_history(root: Path) -> tuple[str, ...]:
    return tuple(board_history.list_archive(crew_of(root).git))


# ── what is known of archived tasks ──────────────────────────────────────────────────────────────────────────────


def test_archived_merged_dependencies_are_met_but_dropped_ones_are_not(root: Path) -> None:
    merged(root, "t2")
    assert move(root) == ("t1", "t2")
    add(root, "t3", "t2")
    add(root, "t4", "t1")
    state = check(root)
    assert picking.unmet_dependencies(state, state.tasks[0]) == ()
    assert picking.unmet_dependencies(state, state.tasks[1]) == ("t1",)
    assert invariants.check_board(state) == ()
    assert state.sprint.metrics["merged"] == 1
    assert state.sprint.metrics["approved"] == 1
    assert state.sprint.metrics["total"] == 4


def test_an_unreadable_archived_dependency_is_not_guessed(root: Path) -> None:
    merged(root, "t2")
    move(root)
    path = the_file(root)
    text = path.read_text()
    path.write_text(text.replace("status: MERGED", "status: NONSENSE"))
    with pytest.raises(Refused, match=r"the entry of t2 in the archive has an error: .*NONSENSE") as refusal:
        add(root, "t3", "t2")
    assert refusal.value.hint == "liza validate"
    path.write_text(text)
    add(root, "t3", "t2")
    path.write_text(text.replace("status: MERGED", "status: NONSENSE"))
    add(root, "t4", "t2")
    state = check(root)
    assert state.archived.outcomes == {"t2": Status.MERGED}
    assert [picking.unmet_dependencies(state, task) for task in state.tasks] == [(), ()]


def test_an_archived_dependency_of_a_present_task_stays_met(root: Path) -> None:
    add(root, "t3", "t2")
    merged(root, "t2")
    move(root)
    state = check(root)
    assert [task.id for task in state.tasks] == ["t3"]
    assert picking.unmet_dependencies(state, state.tasks[0]) == ()


def test_a_superseded_dependency_waits_for_its_successors(root: Path) -> None:
    crew = crew_of(root)
    add(root, "t5")
    with crew.change(ME, "supersede") as tx:
        context = RequestContext(Invocation(now=crew.clock.now(), by=ME, detail="why"), frozenset())
        tx.state = backlog.supersede(tx.state, "t2", [], ["t5"], context)
    assert move(root) == ("t1",)
    merged(root, "t5")
    assert move(root) == ("t2", "t5")
    add(root, "t6", "t2")
    state = check(root)
    assert state.archived.outcomes == {"t2": Status.MERGED}
    assert picking.unmet_dependencies(state, state.tasks[0]) == ()


def test_an_archived_task_has_the_outcome_of_its_present_successors(root: Path) -> None:
    crew = crew_of(root)
    add(root, "t5")
    add(root, "t6")
    for task_id, successor in (("t2", "t5"), ("t5", "t6")):
        with crew.change(ME, "supersede") as tx:
            context = RequestContext(Invocation(now=crew.clock.now(), by=ME, detail="why"), frozenset())
            tx.state = backlog.supersede(tx.state, task_id, [], [successor], context)
    merged(root, "t6")
    assert archive.archive_closed(crew, ME, keep=2) == ("t1", "t2")
    add(root, "t7", "t2")
    state = check(root)
    assert state.archived.outcomes == {"t2": Status.MERGED}
    assert list(archive.find_faults(crew.board, state)) == []


def test_the_id_of_an_archived_task_cannot_be_used_again(root: Path) -> None:
    move(root)
    with pytest.raises(Refused, match="in the archive"):
        add(root, "t1")
    with pytest.raises(Refused, match="is given up and in the archive"):
        archive.refuse_archived(opened(root), opened(root).read(), ["t1"])
    with pytest.raises(UnknownId):
        archive.with_archived(opened(root), opened(root).read(), "t99")


def test_a_task_restored_from_the_archive_is_counted_once(root: Path) -> None:
    before = opened(root).read_text()
    move(root)
    opened(root).replace_text(ME, before)
    assert sorted(on_board(root)) == ["t1", "t2"]
    close(root, "t2")
    assert move(root) == ("t1", "t2")
    state = check(root)
    assert state.archived.total == 2
    assert known(root, "t1").status is Status.ABANDONED


def test_editing_an_old_copy_does_not_restore_an_archived_task(root: Path) -> None:
    before = opened(root).read_text()
    move(root)
    state = Paths(root).state
    state.write_text(before.replace("The second", "The second, by hand"))
    long_ago = time.time() - 60
    os.utime(state, (long_ago, long_ago))
    say(opened(root), "next")
    assert on_board(root) == ["t2"]
    assert opened(root).read().tasks[0].description == "The second, by hand"
    assert opened(root).read().archived.total == 1


# ── edits by hand ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edit_of_the_archive_is_read_again(root: Path) -> None:
    move(root)
    assert known(root, "t1").description == "The first"
    path = the_file(root)
    path.write_text(path.read_text().replace("The first", "The very first"))
    assert known(root, "t1").description == "The very first"
    close(root, "t2")
    assert move(root) == ("t2",)
    assert known(root, "t1").description == "The very first"
    assert in_files(root) == ["t1", "t2"]


def test_lines_appended_by_a_person_belong_to_the_last_entry(root: Path) -> None:
    move(root)
    assert known(root, "t1").rescope_reason is None
    path = the_file(root)
    path.write_text(path.read_text() + "    rescope_reason: of mine")
    assert known(root, "t1").rescope_reason == "of mine"
    close(root, "t2")
    move(root)
    assert known(root, "t1").rescope_reason == "of mine"
    assert known(root, "t2").status is Status.ABANDONED


@pytest.mark.parametrize(
    ("was", "now", "fault"),
    [
        ("status: ABANDONED", "status: NONSENSE", "NONSENSE"),
        ("status: ABANDONED", "status: UNCLAIMED", "not final"),
        ("tasks:", "things:", "tasks:"),
        ("    scope: all", "   scope: [all", "line"),
    ],
)
def test_a_faulty_edit_is_reported_and_nothing_else_stops(root: Path, was: str, now: str, fault: str) -> None:
    move(root)
    path = the_file(root)
    path.write_text(path.read_text().replace(was, now, 1))
    faults = list(archive.find_faults(opened(root), check(root)))
    assert faults[0].entry.startswith(f"archive/{path.name}")
    assert fault in faults[0].actual
    say(opened(root), "the crew works on")
    close(root, "t2")
    assert move(root) == ("t2",)
    assert known(root, "t2").status is Status.ABANDONED
    if "things" not in now:
        with pytest.raises(Refused, match="in the archive"):
            add(root, "t1")


def test_an_archive_that_is_no_directory_blocks_only_its_users(root: Path) -> None:
    Paths(root).archive.write_text("not a directory")
    say(opened(root), "the crew works on")
    with pytest.raises(BoardInconsistent, match="archive cannot be read: Not a directory") as refusal:
        move(root)
    assert refusal.value.hint == f"mv {Paths(root).archive} {Paths(root).archive}.odd"
    assert on_board(root) == ["t1", "t2"]


@pytest.mark.parametrize(("was", "now"), [("tasks:", "things:"), ("status: ABANDONED", "status: NONSENSE")])
def test_the_board_counts_tasks_that_cannot_be_read_any_more(root: Path, was: str, now: str) -> None:
    merged(root, "t2")
    move(root)
    add(root, "t3")
    close(root, "t3")
    path = the_file(root)
    text = path.read_text()
    path.write_text(text.replace(was, now, 1))
    assert move(root) == ("t3",)
    assert check(root).archived.counts == {"ABANDONED": 2, "MERGED": 1}
    assert check(root).archived.verdicts == {"approve": 1}


def test_no_task_moves_to_a_file_that_no_reader_finds(root: Path) -> None:
    Paths(root).archive.mkdir()
    (Paths(root).archive / f"{SystemClock().now():%Y-%m}.999999.yaml").write_text("not an archive\n")
    with pytest.raises(Refused, match="cannot have a file"):
        move(root)
    assert on_board(root) == ["t1", "t2"]


def test_no_task_moves_through_a_link_at_the_directory(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Paths(root).archive.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="is a link"):
        move(root)
    assert on_board(root) == ["t1", "t2"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_archive_failure_is_logged_once_until_it_clears(root: Path) -> None:
    with crew_of(root).change(ME, "test") as tx:
        tx.state = replace(tx.state, config=replace(tx.state.config, archive_after=1))
    close(root, "t2")
    crew = crew_of(root)
    crew.paths.archive.write_text("not a directory")
    archive.archive_if_due(crew, ME)
    archive.archive_if_due(crew, ME)
    assert crew.paths.alerts.read_text().count("archive_failed") == 1
    crew.paths.archive.unlink()
    archive.archive_if_due(crew, ME)
    assert on_board(root) == []
    add(root, "t3")
    add(root, "t4")
    close(root, "t3", "t4")
    shutil.rmtree(crew.paths.archive)
    crew.paths.archive.write_text("not a directory")
    archive.archive_if_due(crew, ME)
    archive.archive_if_due(crew, ME)
    assert crew.paths.alerts.read_text().count("archive_failed") == 2


# ── repair ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_of_an_unreadable_archive_file_is_not_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    move(root)
    recorder.record_history(crew_of(root))
    path = the_file(root)
    path.unlink()
    with pytest.raises(UnknownId, match="the files have 0 of the 1 task that the board counts") as refusal:
        archive.with_archived(opened(root), opened(root).read(), "t1")
    assert refusal.value.hint == "liza validate"
    path.mkdir()
    with pytest.raises(UnknownId, match="is not a regular file"):
        archive.with_archived(opened(root), opened(root).read(), "t1")
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    archive.repair(crew_of(root))
    assert [copy.is_dir() for copy in path.parent.glob("*.damaged-*")] == [True]
    assert validate_verb.validate(None)["valid"]
    assert archive.with_archived(opened(root), opened(root).read(), "t1").task("t1") is not None
    with pytest.raises(UnknownId, match="on the board"):
        archive.with_archived(opened(root), opened(root).read(), "t9")


def test_a_repair_restores_recorded_files_and_recounts_deleted_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    move(root)
    recorder.record_history(crew_of(root))
    path = the_file(root)
    text = path.read_text()
    path.unlink()
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    assert archive.repair(crew_of(root)).details["restored"] == [path.name]
    assert path.read_text() == text
    assert validate_verb.validate(None)["valid"]
    path.write_text(text[: text.index("  - id")])
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    assert archive.repair(crew_of(root)).details["restored"] == [path.name]
    assert path.read_text() == text
    # A deleted entry cannot be told from a lost one; a comment can.
    start = text.index("  - id")
    path.write_text(text[:start] + "".join(f"#{line}\n" for line in text[start:].splitlines()))
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    details = archive.repair(crew_of(root)).details
    assert (details["counted"], details["total"]) == (1, 0)
    assert validate_verb.validate(None)["valid"]
    assert check(root).archived.counts == {}


def test_a_repair_gives_the_board_the_outcomes_of_the_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    merged(root, "t2")
    move(root)
    add(root, "t3", "t2")
    with crew_of(root).change(ME, "test") as tx:
        wrong = replace(tx.state.archived, outcomes={"t2": Status.ABANDONED})
        tx.state = replace(tx.state, archived=wrong)
    found = validate_verb.validate(None)
    assert [(row["found"], row["wanted"]) for row in found["violations"]] == [("t2: ABANDONED", "t2: MERGED")]
    assert found["next"] == "liza archive --repair"
    assert archive.repair(crew_of(root)).result == "changed"
    state = check(root)
    assert picking.unmet_dependencies(state, state.tasks[0]) == ()
    assert validate_verb.validate(None)["valid"]


def test_board_and_archive_parsers_read_the_same(root: Path) -> None:
    close(root, "t2")
    tasks = {task.id: task for task in opened(root).read().tasks}
    move(root)
    text = the_file(root).read_text()
    whole = document.load_state(f"version: 1\nrevision: 1\ngoal: {{id: g, status: IN_PROGRESS}}\n{text}")
    assert {task.id: task for task in whole.tasks} == tasks
    assert {task_id: known(root, task_id) for task_id in tasks} == tasks


# ── files that lost entries ──────────────────────────────────────────────────────────────────────────────────────────


def recorded_two(root: Path) -> Path:
    """Return the archive file of two recorded tasks t1 and t2."""
    move(root)
    merged(root, "t2")
    move(root)
    recorder.record_history(crew_of(root))
    return the_file(root)


def cut_off(text: str) -> str:
    return text[: text.rindex("  - id")]


def without_first(text: str) -> str:
    return text[: text.index("  - id")] + text[text.rindex("  - id") :]


def test_the_last_of_several_entries_of_a_task_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened(root).read_text()
    monkeypatch.setattr(archive_files, "MAX_FILE_SIZE", 300)
    move(root)
    close(root, "t2")
    move(root)
    opened(root).replace_text(ME, before.replace("The first", "The very first"))
    close(root, "t2")
    assert move(root) == ("t1", "t2")
    assert in_files(root) == ["t1", "t2", "t1", "t2"]
    assert known(root, "t1").description == "The very first"
    assert check(root).archived.total == 2
    assert list(archive.find_faults(opened(root), check(root))) == []


LOSSES = pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.replace("tasks:", "things:", 1),
        cut_off,
        without_first,
    ],
    ids=["empty", "no tasks", "cut off between entries", "deleted entry"],
)


@pytest.mark.sample(2)
@LOSSES
def test_lost_entries_are_reported_never_recorded_and_restored(
    root: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[str], str]
) -> None:
    path = recorded_two(root)
    was = path.read_text()
    path.write_text(damage(was))
    say(opened(root), "the crew works on")
    recorder.record_history(crew_of(root))
    assert board_history.read_archive_file(crew_of(root).git, path.name) == was.encode()
    monkeypatch.chdir(root)
    [alarm] = archive_alarms(root)
    assert alarm["next"] == validate_verb.validate(None)["next"] == "liza archive --repair"
    [finding] = [found for found in findings.list_findings(crew_of(root), check(root)) if found.about == "archive"]
    assert (finding.ok, finding.hint) == (False, "liza archive --repair")
    with pytest.raises(BoardInconsistent, match="no task can be added") as refusal:
        task_verb.add(crew_of(root), [TaskFields("t9", "d")])
    assert refusal.value.hint == "liza archive --repair"
    result = restore_verb.restore(crew_of(root), last_good=True)
    assert result.details["archive"] == [path.name]
    assert_restored(path, was, damage)
    assert [copy.read_text() for copy in path.parent.glob(f"{path.name}.damaged-*")] == [damage(was)] * (
        "tasks:" not in damage(was)
    )
    assert validate_verb.validate(None)["valid"]
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"


def assert_restored(path: Path, was: str, damage: Callable[[str], str]) -> None:
    """The file is as before; one that could be read keeps its order, and the lost entry is behind the others."""
    if damage is without_first:
        head, first, second = was.split("  - id")
        was = f"{head}  - id{second}  - id{first}"
    assert path.read_text() == was


@pytest.mark.sample(2)
@LOSSES
def test_a_move_beside_a_damaged_file_counts_its_tasks(root: Path, damage: Callable[[str], str]) -> None:
    add(root, "t3")
    path = recorded_two(root)
    path.write_text(damage(path.read_text()))
    close(root, "t3")
    assert move(root) == ("t3",)
    assert check(root).archived.counts == {"ABANDONED": 2, "MERGED": 1}
    recorder.record_history(crew_of(root))
    archive.repair(crew_of(root))
    assert sorted(in_files(root)) == ["t1", "t2", "t3"]
    assert check(root).archived.counts == {"ABANDONED": 2, "MERGED": 1}


def test_repairing_a_lost_entry_keeps_other_edits_of_its_file(root: Path) -> None:
    add(root, "t3")
    path = recorded_two(root)
    close(root, "t3")
    move(root)
    head, lost, *others = path.read_text().split("  - id")
    damaged = "  - id".join([f"# of people\n{head}", *others])
    path.write_text(damaged)
    restore_verb.restore(crew_of(root), last_good=True)
    assert path.read_text() == f"{damaged}  - id{lost}"


def test_a_repair_does_not_restore_entries_a_person_took_out(root: Path) -> None:
    path = recorded_two(root)
    head, first, second = path.read_text().split("  - id")
    path.write_text(head + "".join(f"# {line}\n" for line in f"  - id{first}".splitlines()))
    board = Paths(root).state
    board.write_text(re.sub(r"^tasks:.*\n", lambda _: f"tasks:\n  - id{second}", board.read_text(), flags=re.MULTILINE))
    assert on_board(root) == ["t2"]
    text = path.read_text()
    assert archive.repair(crew_of(root)).details["restored"] == []
    assert path.read_text() == text
    assert check(root).archived.total == 0
    assert archive_alarms(root) == []


@pytest.mark.campaign
@pytest.mark.parametrize("is_readable", [True, False])
def test_a_repair_killed_at_any_point_loses_no_entry(root: Path, tmp_path: Path, is_readable: bool) -> None:
    add(root, "t3")
    path = recorded_two(root)
    close(root, "t3")
    move(root)
    head, _, *others = path.read_text().split("  - id")
    if is_readable:
        # The history does not have t3 yet.
        path.write_text("  - id".join([head, *others]))
    else:
        say(opened(root), "recorded")
        recorder.record_history(crew_of(root))
        path.write_text("nothing")
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: archive.repair(crew_of(copy)), tmp_path / "trace")
    assert f"renamed.{path.name}#1" in points
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: archive.repair(crew_of(copy)), point)), point
        archive.repair(crew_of(copy))
        assert sorted(in_files(copy)) == ["t1", "t2", "t3"], point
        assert check(copy).archived.total == 3, point


def test_repair_sets_aside_a_directory_named_as_an_archive_file(root: Path) -> None:
    path = recorded_two(root)
    was = path.read_text()
    path.unlink()
    path.mkdir()
    (path / "note").write_text("of a person")
    restore_verb.restore(crew_of(root), last_good=True)
    assert path.read_text() == was
    [copy] = path.parent.glob(f"{path.name}.damaged-*")
    assert (copy / "note").read_text() == "of a person"


def test_a_damaged_version_in_the_history_is_passed_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded_two(root)
    was = path.read_text()
    path.write_text("")
    with monkeypatch.context() as context:
        context.setattr(archive_files.ArchiveFiles, "find_archive_damage", lambda board, state: None)
        say(opened(root), "a change")
        recorder.record_history(crew_of(root))
    assert board_history.read_archive_file(crew_of(root).git, path.name) == b""
    restore_verb.restore(crew_of(root), last_good=True)
    assert path.read_text() == was


def two_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return two recorded archive files, of t1 and of t2."""
    monkeypatch.setattr(archive_files, "MAX_FILE_SIZE", 300)
    move(root)
    close(root, "t2")
    move(root)
    recorder.record_history(crew_of(root))
    first, second = archive_files.list_names(Paths(root))
    return Paths(root).archive / first, Paths(root).archive / second


def archive_alarms(root: Path) -> list[dict[str, object]]:
    return [row for row in status_verb.status(crew_of(root)).fields()["alerts"] if row["kind"] == "archive_damaged"]


def test_archive_files_renamed_or_joined_by_hand_are_not_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two_files(root, monkeypatch)
    add(root, "t3")
    first = first.rename(first.with_name("2020-01.yaml"))
    close(root, "t3")
    assert move(root) == ("t3",)
    first.write_text(first.read_text() + second.read_text().partition("tasks:\n")[2])
    second.unlink()
    assert archive_alarms(root) == []
    assert archive.restore_entries(crew_of(root), ME).names == ()
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"
    recorder.record_history(crew_of(root))
    first.unlink()
    assert len(archive_alarms(root)) == 1


def test_a_repair_recounts_what_history_does_not_have_either(root: Path) -> None:
    path = recorded_two(root)
    git(root, "update-ref", "-d", "refs/liza/blackboard")
    path.unlink()
    [alarm] = archive_alarms(root)
    assert alarm["next"] == "liza archive --repair"
    with pytest.raises(BoardInconsistent, match="no task can be added"):
        task_verb.add(crew_of(root), [TaskFields("t9", "d")])
    done = archive.repair(crew_of(root))
    assert done.details["vanished"] == ["t1", "t2"]
    assert archive_alarms(root) == []
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"


def test_an_id_that_is_not_utf8_is_refused_as_one(root: Path) -> None:
    move(root)
    crew = crew_of(root)
    state = crew.board.read()
    archive.refuse_archived(crew.board, state, ["\udcff"])
    with pytest.raises(UsageError):
        archive.with_archived(crew.board, state, "\udcff")


def test_a_repair_names_a_task_that_vanished_unrecorded(root: Path) -> None:
    move(root)
    path = the_file(root)
    before = path.read_text()
    merged(root, "t2")
    move(root)
    # The buffer of an editor from before the second move.
    path.write_text(before)
    done = archive.repair(crew_of(root))
    assert done.details["vanished"] == ["t2"]
    assert "liza history t2 -p" in done.message
    assert archive.repair(crew_of(root)).details["vanished"] == []
