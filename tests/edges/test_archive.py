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

from liza.board import archive_damage, archive_files, archive_moves, archived_tasks, recorded_archive, recorder
from liza.board.archive_index import ArchiveIndex
from liza.board.text import document
from liza.git import board_history
from liza.model import invariants
from liza.model.errors import BoardInconsistent, GitFailed, Refused, UnknownId, UsageError
from liza.model.model import ArchiveSummary, Event, Status, Task
from liza.model.paths import Paths
from liza.model.transitions import Invocation
from liza.recovery import findings
from liza.recovery import restore as restore_verb
from liza.recovery import validate as validate_verb
from liza.system.clock import SystemClock
from liza.tasks import archive
from liza.tasks import archive as archive_verb
from liza.tasks import task as task_verb
from liza.tasks.rules import backlog, picking
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.view import status as status_verb
from tests.campaign.small_board import FIRST, check, child, crew_of, killed, opened, passed, repository, say
from tests.conftest import git, variant

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
        archived = archived_tasks.find_outcomes(crew, tx.state, (task_id, *needs))
        context = RequestContext(Invocation(now=crew.clock.now(), by=ME), frozenset({"specs/a.md"}), archived)
        tx.state = backlog.add(tx.state, [fields], context)


def move(root: Path) -> tuple[str, ...]:
    return archive_moves.archive_closed(crew_of(root), ME)


def in_files(root: Path) -> list[str]:
    """The ids in the files of the archive, read by nothing but the parser of the files."""
    paths = Paths(root)
    names = archive_files.list_names(paths)
    return [entry.id for name in names for entry in archive_files.split_file((paths.archive / name).read_bytes())]


def on_board(root: Path) -> list[str]:
    return [task.id for task in opened(root).read().tasks]


def known(root: Path, task_id: str) -> Task:
    crew = crew_of(root)
    task = archived_tasks.find_task(crew, crew.board.read(), task_id)
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


def test_the_board_with_no_task_left_can_be_read_and_gets_new_ones(root: Path) -> None:
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


def test_a_full_file_is_followed_by_another_of_the_same_month(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "MAX_FILE_SIZE", 300)
    move(root)
    close(root, "t2")
    move(root)
    names = archive_files.list_names(Paths(root))
    assert len(names) == 2
    assert names[1] == names[0].replace(".yaml", ".2.yaml")
    assert in_files(root) == ["t1", "t2"]
    assert known(root, "t2").status is Status.ABANDONED


def test_a_task_stays_while_the_session_of_its_run_is_not_concluded(root: Path) -> None:
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
    board, files = on_board(root), in_view(root)
    assert known(root, "t1").status is Status.ABANDONED
    assert "t1" in board or "t1" in files
    say(opened(root), "next")
    assert (on_board(root) + in_files(root)).count("t1") == 1
    assert not Paths(root).archive_intent.exists()
    state = check(root)
    assert invariants.check_board(state) == ()
    assert state.archived.total == in_files(root).count("t1")
    assert list(archived_tasks.find_faults(crew_of(root), state)) == []


def in_view(root: Path) -> list[str]:
    return ArchiveIndex(Paths(root)).ids()


@pytest.mark.campaign
def test_a_kill_at_any_point_of_a_move_leaves_every_task_in_one_place(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: move(copy), tmp_path / "trace")
    assert {"renamed.archive-intent#1", "unlinked.archive-intent#1", "renamed.state.yaml#1"} <= set(points)
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: move(copy), point)), point
        assert_in_one_place(copy)
        move(copy)
        assert on_board(copy) == ["t2"], point
        assert in_files(copy) == ["t1"], point


@pytest.mark.campaign
def test_a_full_disk_at_any_point_of_a_move_leaves_every_task_in_one_place(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    for point in passed(lambda: move(copy), tmp_path / "trace"):
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert child(lambda: move(copy), f"{point}:full") in (0, 4, 98), point
        assert_in_one_place(copy)


@pytest.mark.campaign
def test_a_kill_in_the_repair_of_a_move_is_repaired(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for broken in ("synced.2026-01.yaml", "renamed.state.yaml"):
        point = next(p for p in points_of(root, tmp_path) if p.split(".")[0] == broken.split(".")[0])
        base = tmp_path / f"base-{point}"
        shutil.copytree(root, base, symlinks=True)
        assert killed(child(lambda base=base: move(base), point))
        shutil.copytree(base, copy, symlinks=True)
        repairs = passed(lambda: say(opened(copy), "x"), tmp_path / "trace")
        shutil.rmtree(copy)
        for repair in repairs:
            shutil.copytree(base, copy, symlinks=True)
            assert killed(child(lambda: say(opened(copy), "x"), repair)), repair
            assert_in_one_place(copy)
            shutil.rmtree(copy)


def points_of(root: Path, tmp_path: Path) -> list[str]:
    trial = tmp_path / "trial"
    shutil.copytree(root, trial, symlinks=True)
    points = passed(lambda: move(trial), tmp_path / "trace")
    shutil.rmtree(trial)
    return points


def test_an_interrupted_move_does_not_undo_what_a_person_wrote_into_the_file_since(root: Path, tmp_path: Path) -> None:
    close(root, "t2")
    archive_moves.archive_closed(crew_of(root), ME, keep=1)
    assert killed(child(lambda: move(root), f"synced.{the_file(root).name}#1"))
    path = the_file(root)
    path.write_text(path.read_text() + "  # a note of mine\n")
    say(opened(root), "next")
    assert "a note of mine" in path.read_text()
    assert known(root, "t2").status is Status.ABANDONED


def test_an_old_copy_that_brings_back_one_task_of_an_interrupted_move_does_not_lose_the_others(root: Path) -> None:
    close(root, "t2")
    copy = Paths(root).state.read_text()
    assert killed(child(lambda: move(root), "fsynced.state.yaml#1"))
    edited = copy.replace("colour: blue", "colour: red").replace("description: ", "description: new ", 1)
    Paths(root).state.write_text(edited)
    os.utime(Paths(root).state, (time.time() - 60,) * 2)
    say(opened(root), "next")
    assert not Paths(root).archive_intent.exists()
    assert set(on_board(root)) | set(in_files(root)) == {"t1", "t2"}
    assert len(on_board(root)) == 1


def test_a_file_that_lost_its_end_after_the_commit_gets_it_back(root: Path) -> None:
    assert killed(child(lambda: move(root), "fsynced.state.yaml#1"))
    path = the_file(root)
    path.write_bytes(path.read_bytes()[:-40])
    assert known(root, "t1").scope == "all"
    say(opened(root), "next")
    assert in_files(root) == ["t1"]
    assert not Paths(root).archive_intent.exists()
    assert known(root, "t1").history[-1].event == "drop"


def test_an_old_copy_of_the_file_saved_after_an_interrupted_move_gets_its_tasks(root: Path) -> None:
    close(root, "t2")
    archive_moves.archive_closed(crew_of(root), ME, keep=1)
    copy = the_file(root).read_text()
    assert killed(child(lambda: move(root), "fsynced.state.yaml#1"))
    the_file(root).write_text(copy + "  # a note of mine\n")
    say(opened(root), "next")
    assert "a note of mine" in the_file(root).read_text()
    assert sorted(in_files(root)) == ["t1", "t2"]


def test_a_file_that_is_deleted_after_an_interrupted_move_gets_the_moved_task(root: Path) -> None:
    close(root, "t2")
    archive_moves.archive_closed(crew_of(root), ME, keep=1)
    assert killed(child(lambda: move(root), "fsynced.state.yaml#1"))
    the_file(root).unlink()
    say(opened(root), "next")
    assert in_files(root) == ["t2"]
    assert known(root, "t2").status is Status.ABANDONED


@pytest.mark.campaign
@pytest.mark.parametrize("step", ["written", variant("synced")])
def test_a_kill_while_the_first_move_is_undone_leaves_no_empty_file(root: Path, tmp_path: Path, step: str) -> None:
    points = points_of(root, tmp_path)
    point = next(point for point in points if re.match(rf"{step}\.\d{{4}}-\d\d\.yaml", point))
    assert killed(child(lambda: move(root), point))
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    for place in passed(lambda: say(opened(copy), "x"), tmp_path / "trace"):
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: say(opened(copy), "x"), place)), place
        assert_in_one_place(copy)
        assert archive_files.list_names(Paths(copy)) == [], place


def test_the_empty_file_of_a_move_that_was_killed_before_its_append_is_removed(root: Path) -> None:
    assert killed(child(lambda: move(root), "renamed.archive-intent#1"))
    intent = archive_files.read_intent(Paths(root))
    assert intent is not None
    (Paths(root).archive / intent.name).touch()
    assert_in_one_place(root)
    assert archive_files.list_names(Paths(root)) == []


@pytest.mark.parametrize("point", ["fsynced.state.yaml#1", "renamed.state.yaml#1", "renamed.archive-intent#1"])
def test_the_history_has_the_files_of_a_move_that_a_kill_interrupted(root: Path, point: str) -> None:
    assert killed(child(lambda: move(root), point))
    crew = crew_of(root)
    recorder.record_history(crew)
    newest = board_history.read_newest(crew.git)
    assert newest is not None
    archived = b"".join(board_history.read_archive_file(crew.git, name) or b"" for name in in_history(root))
    assert [task_id for task_id in ("t1", "t2") if f'id: "{task_id}"' in newest[1]] == on_board(root)
    assert archived.count(b'id: "t1"') == len(in_files(root)) == 2 - len(on_board(root))


def in_history(root: Path) -> tuple[str, ...]:
    return tuple(board_history.list_archive(crew_of(root).git))


# ── what is known of archived tasks ──────────────────────────────────────────────────────────────────────────────


def test_a_dependency_on_an_archived_merged_task_is_met_and_one_on_a_dropped_task_is_not(root: Path) -> None:
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


def test_a_dependency_on_an_archived_task_that_cannot_be_read_is_not_guessed(root: Path) -> None:
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


def test_an_archived_dependency_of_a_task_on_the_board_stays_met(root: Path) -> None:
    add(root, "t3", "t2")
    merged(root, "t2")
    move(root)
    state = check(root)
    assert [task.id for task in state.tasks] == ["t3"]
    assert picking.unmet_dependencies(state, state.tasks[0]) == ()


def test_a_superseded_task_counts_as_its_successors_and_waits_for_them(root: Path) -> None:
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


def test_an_archived_task_has_the_outcome_of_a_chain_of_successors_on_the_board(root: Path) -> None:
    crew = crew_of(root)
    add(root, "t5")
    add(root, "t6")
    for task_id, successor in (("t2", "t5"), ("t5", "t6")):
        with crew.change(ME, "supersede") as tx:
            context = RequestContext(Invocation(now=crew.clock.now(), by=ME, detail="why"), frozenset())
            tx.state = backlog.supersede(tx.state, task_id, [], [successor], context)
    merged(root, "t6")
    assert archive_moves.archive_closed(crew, ME, keep=2) == ("t1", "t2")
    add(root, "t7", "t2")
    state = check(root)
    assert state.archived.outcomes == {"t2": Status.MERGED}
    assert list(archived_tasks.find_faults(crew, state)) == []


def test_the_id_of_an_archived_task_cannot_be_used_again(root: Path) -> None:
    move(root)
    with pytest.raises(Refused, match="in the archive"):
        add(root, "t1")
    with pytest.raises(Refused, match="is given up and in the archive"):
        archived_tasks.refuse_archived(crew_of(root), opened(root).read(), ["t1"])
    with pytest.raises(UnknownId):
        archived_tasks.with_archived(crew_of(root), opened(root).read(), "t99")


def test_a_task_that_a_restored_board_has_again_is_not_counted_twice(root: Path) -> None:
    before = opened(root).read_text()
    move(root)
    opened(root).replace_text(ME, before)
    assert sorted(on_board(root)) == ["t1", "t2"]
    close(root, "t2")
    assert move(root) == ("t1", "t2")
    state = check(root)
    assert state.archived.total == 2
    assert known(root, "t1").status is Status.ABANDONED


def test_an_edit_of_a_copy_from_before_the_move_does_not_bring_the_task_back(root: Path) -> None:
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


def test_lines_that_a_person_appends_to_the_last_entry_belong_to_it(root: Path) -> None:
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
    faults = ArchiveIndex(Paths(root)).find_faults()
    assert [name for name, _, _ in faults] == [path.name]
    assert fault in faults[0][2]
    say(opened(root), "the crew works on")
    close(root, "t2")
    assert move(root) == ("t2",)
    assert known(root, "t2").status is Status.ABANDONED
    if "things" not in now:
        with pytest.raises(Refused, match="in the archive"):
            add(root, "t1")


def test_a_missing_damaged_or_hostile_index_is_made_again(root: Path, tmp_path: Path) -> None:
    move(root)
    assert known(root, "t1").status is Status.ABANDONED
    index = Paths(root).archive_index
    target = tmp_path / "precious"
    target.write_text("mine")
    for spoil in (
        index.unlink,
        lambda: index.write_bytes(b"SQLite format 3\0" + b"x" * 5000),
        lambda: index.write_bytes(index.read_bytes()[:-9]),
        lambda: (index.unlink(), index.symlink_to(target)),
        lambda: (index.unlink(), os.mkfifo(index)),
        lambda: (index.unlink(), index.mkdir()),
    ):
        spoil()
        assert known(root, "t1").status is Status.ABANDONED
    assert target.read_text() == "mine"


def test_an_archive_that_is_no_directory_refuses_only_what_needs_it(root: Path) -> None:
    Paths(root).archive.write_text("not a directory")
    say(opened(root), "the crew works on")
    with pytest.raises(BoardInconsistent, match="archive cannot be read: Not a directory") as refusal:
        move(root)
    assert refusal.value.hint == f"mv {Paths(root).archive} {Paths(root).archive}.odd"
    assert on_board(root) == ["t1", "t2"]
    assert not Paths(root).archive_intent.exists() or known(root, "t1")


def test_no_task_is_archived_while_the_files_that_the_board_counts_are_gone(root: Path) -> None:
    move(root)
    shutil.rmtree(Paths(root).archive)
    close(root, "t2")
    with pytest.raises(BoardInconsistent, match="no files"):
        move(root)
    assert check(root).archived.total == 1
    assert on_board(root) == ["t2"]


def test_no_task_is_archived_while_one_of_several_recorded_files_is_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(root, "t3")
    monkeypatch.setattr(archive_files, "MAX_FILE_SIZE", 300)
    move(root)
    close(root, "t2")
    move(root)
    recorder.record_history(crew_of(root))
    first, second = archive_files.list_names(Paths(root))
    was = (Paths(root).archive / second).read_bytes()
    (Paths(root).archive / second).unlink()
    close(root, "t3")
    with pytest.raises(BoardInconsistent, match=rf"lacks {second}") as refusal:
        move(root)
    assert refusal.value.hint == "liza restore --last-good"
    assert check(root).archived.total == 2
    assert archive_files.list_names(Paths(root)) == [first]
    assert archive_damage.restore_files(crew_of(root), ME).names == (second,)
    assert (Paths(root).archive / second).read_bytes() == was
    assert move(root) == ("t3",)
    assert check(root).archived.total == 3


@pytest.mark.parametrize(("was", "now"), [("tasks:", "things:"), ("status: ABANDONED", "status: NONSENSE")])
def test_the_board_still_counts_the_tasks_of_what_cannot_be_read(root: Path, was: str, now: str) -> None:
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


def test_a_failure_to_archive_is_logged_once_until_it_has_cleared(root: Path) -> None:
    with crew_of(root).change(ME, "test") as tx:
        tx.state = replace(tx.state, config=replace(tx.state.config, archive_after=1))
    close(root, "t2")
    crew = crew_of(root)
    crew.paths.archive.write_text("not a directory")
    archive_moves.archive_if_due(crew, ME)
    archive_moves.archive_if_due(crew, ME)
    assert crew.paths.alerts.read_text().count("archive_failed") == 1
    crew.paths.archive.unlink()
    archive_moves.archive_if_due(crew, ME)
    assert on_board(root) == []
    add(root, "t3")
    add(root, "t4")
    close(root, "t3", "t4")
    shutil.rmtree(crew.paths.archive)
    archive_moves.archive_if_due(crew, ME)
    archive_moves.archive_if_due(crew, ME)
    assert crew.paths.alerts.read_text().count("archive_failed") == 2


def test_validate_names_what_is_wrong_in_the_archive(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move(root)
    monkeypatch.chdir(root)
    assert validate_verb.validate(None)["valid"]
    path = the_file(root)
    entry = path.read_text()[path.read_text().index("  - id") :]
    path.write_text(path.read_text() + entry)
    found = validate_verb.validate(None)
    assert not found["valid"]
    assert found["violations"][0]["entry"] == f"archive/{path.name}: t1"
    assert "more than once" in found["violations"][0]["found"]
    path.unlink()
    [lost] = validate_verb.validate(None)["violations"]
    assert (lost["entry"], lost["found"], lost["wanted"]) == (
        "archived.counts",
        "ABANDONED: 1",
        "ABANDONED: 0, as the files have",
    )


# ── repair ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def archived_twice(root: Path) -> None:
    """Archive t1 and t2, restore the board of before, and archive them again."""
    before = opened(root).read_text()
    move(root)
    opened(root).replace_text(ME, before)
    close(root, "t2")
    move(root)


def test_validate_names_the_command_that_repairs_former_copies(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    archived_twice(root)
    path = the_file(root)
    path.write_text(path.read_text().replace("    scope: all\n", "    scope: |\n      all\n\n      of it\n"))
    found = validate_verb.validate(None)
    assert [row["entry"] for row in found["violations"]] == [f"archive/{path.name}: t1"]
    assert found["next"] == "liza archive --repair"
    tasks, lines = [known(root, "t1"), known(root, "t2")], path.read_text().splitlines()
    result = archive_verb.repair(crew_of(root))
    assert (result.result, result.details["copies"], result.next) == ("changed", 1, "liza validate")
    assert validate_verb.validate(None)["valid"]
    assert in_files(root) == ["t1", "t2"]
    assert [known(root, "t1"), known(root, "t2")] == tasks
    assert set(lines) - {""} <= {line.removeprefix("#") for line in path.read_text().splitlines()} | set(lines[:3])
    assert path.read_text().count("#    colour: blue # of people\n") == 1
    assert archive_verb.repair(crew_of(root)).result == "unchanged"


def test_a_former_copy_stays_if_the_last_one_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    archived_twice(root)
    path = the_file(root)
    head, _, tail = path.read_text().rpartition('- id: "t1"\n    status: ABANDONED')
    path.write_text(f'{head}- id: "t1"\n    status: NONSENSE{tail}')
    text = path.read_text()
    assert validate_verb.validate(None)["next"] == f"$EDITOR {path}"
    archive_verb.repair(crew_of(root))
    assert path.read_text() == text
    path.write_text(text.replace("NONSENSE", "ABANDONED"))
    archive_verb.repair(crew_of(root))
    assert validate_verb.validate(None)["valid"]


def test_a_task_of_a_missing_or_unreadable_file_is_not_called_unknown_without_a_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    move(root)
    recorder.record_history(crew_of(root))
    path = the_file(root)
    path.unlink()
    with pytest.raises(UnknownId, match="the board counts 1 task in it, the files have 0") as refusal:
        archived_tasks.with_archived(crew_of(root), opened(root).read(), "t1")
    assert refusal.value.hint == "liza validate"
    path.mkdir()
    with pytest.raises(UnknownId, match="is not a regular file"):
        archived_tasks.with_archived(crew_of(root), opened(root).read(), "t1")
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    archive_verb.repair(crew_of(root))
    assert [copy.is_dir() for copy in path.parent.glob("*.damaged-*")] == [True]
    assert validate_verb.validate(None)["valid"]
    assert archived_tasks.with_archived(crew_of(root), opened(root).read(), "t1").task("t1") is not None
    with pytest.raises(UnknownId, match="on the board"):
        archived_tasks.with_archived(crew_of(root), opened(root).read(), "t9")


def test_a_repair_writes_recorded_files_and_counts_anew_what_a_person_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    move(root)
    recorder.record_history(crew_of(root))
    path = the_file(root)
    text = path.read_text()
    path.unlink()
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    assert archive_verb.repair(crew_of(root)).details["restored"] == [path.name]
    assert path.read_text() == text
    assert validate_verb.validate(None)["valid"]
    path.write_text(text[: text.index("  - id")])
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    assert archive_verb.repair(crew_of(root)).details["restored"] == [path.name]
    assert path.read_text() == text
    # A deleted entry cannot be told from a lost one; a comment can.
    start = text.index("  - id")
    path.write_text(text[:start] + "".join(f"#{line}\n" for line in text[start:].splitlines()))
    assert validate_verb.validate(None)["next"] == "liza archive --repair"
    details = archive_verb.repair(crew_of(root)).details
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
    assert archive_verb.repair(crew_of(root)).result == "changed"
    state = check(root)
    assert picking.unmet_dependencies(state, state.tasks[0]) == ()
    assert validate_verb.validate(None)["valid"]


def test_a_repair_does_not_overwrite_an_edit_made_since_it_read_the_file(root: Path) -> None:
    archived_twice(root)
    path = the_file(root)
    [(name, offsets)] = ArchiveIndex(Paths(root)).find_copies().items()
    change = archive_files.comment_out(Paths(root), name, offsets)
    path.write_text(path.read_text() + "  # a note of mine\n")
    with pytest.raises(BoardInconsistent, match="has changed meanwhile") as refusal:
        archive_files.rewrite(Paths(root), change)
    assert refusal.value.hint == "liza archive --repair"
    assert "a note of mine" in path.read_text()


@pytest.mark.campaign
def test_a_kill_at_any_point_of_a_repair_is_repaired_by_the_next_one(root: Path, tmp_path: Path) -> None:
    archived_twice(root)
    Paths(root).state.write_text(Paths(root).state.read_text().replace("ABANDONED: 2", "ABANDONED: 7"))
    say(opened(root), "next")
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: archive.repair_archive(crew_of(copy), ME), tmp_path / "trace")
    assert {f"renamed.{the_file(root).name}#1", "renamed.state.yaml#1"} <= set(points)
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: archive.repair_archive(crew_of(copy), ME), point)), point
        archive.repair_archive(crew_of(copy), ME)
        assert in_files(copy) == ["t1", "t2"], point
        assert list(archived_tasks.find_faults(crew_of(copy), check(copy))) == [], point


def test_the_parser_of_boards_reads_the_same_as_the_parser_of_the_archive(root: Path) -> None:
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


LOSSES = pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.replace("tasks:", "things:", 1),
        cut_off,
        lambda text: text[:-40],
        without_first,
    ],
    ids=["empty", "no tasks", "cut off between entries", "cut off in an entry", "deleted entry"],
)


@pytest.mark.sample(2)
@LOSSES
def test_damage_of_an_archive_file_is_never_recorded_and_the_recorded_version_is_restored(
    root: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[str], str]
) -> None:
    path = recorded_two(root)
    was = path.read_text()
    path.write_text(damage(was))
    say(opened(root), "the crew works on")
    recorder.record_history(crew_of(root))
    assert board_history.read_archive_file(crew_of(root).git, path.name) == was.encode()
    monkeypatch.chdir(root)
    [alarm] = [row for row in status_verb.status(crew_of(root))["alerts"] if row["kind"] == "archive_damaged"]
    assert path.name in alarm["message"]
    assert alarm["next"] == validate_verb.validate(None)["next"] == "liza archive --repair"
    assert_sentence(path.name)
    [finding] = [found for found in findings.list_findings(crew_of(root), check(root)) if found.about == "archive"]
    assert (finding.ok, finding.hint) == (False, "liza archive --repair")
    with pytest.raises(BoardInconsistent, match="no task can be added") as refusal:
        task_verb.add(crew_of(root), [TaskFields("t9", "d")])
    assert refusal.value.hint == "liza archive --repair"
    result = restore_verb.restore(crew_of(root), last_good=True)
    assert result.details["archive"] == [path.name]
    assert_restored(path, was, damage)
    [copy] = path.parent.glob(f"{path.name}.damaged-*")
    assert copy.read_text() == damage(was)
    assert validate_verb.validate(None)["valid"]
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"


def assert_restored(path: Path, was: str, damage: Callable[[str], str]) -> None:
    """The file is as before; one that could be read keeps its order, and the lost entry is behind the others."""
    if damage is without_first:
        head, first, second = was.split("  - id")
        was = f"{head}  - id{second}  - id{first}"
    assert path.read_text() == was


def assert_sentence(name: str) -> None:
    violation = validate_verb.validate(None)["violations"][0]
    assert violation["entry"] == f"archive/{name}"
    assert violation["field"] == "the file"
    assert violation["found"].startswith("damaged: it ")
    assert violation["wanted"] == "a file with the entries that the history has"


@LOSSES
def test_a_move_beside_a_damaged_file_counts_its_tasks_and_leaves_it(root: Path, damage: Callable[[str], str]) -> None:
    add(root, "t3")
    path = recorded_two(root)
    was = path.read_text()
    path.write_text(damage(was))
    close(root, "t3")
    assert move(root) == ("t3",)
    assert path.read_text() == damage(was)
    assert check(root).archived.counts == {"ABANDONED": 2, "MERGED": 1}
    recorder.record_history(crew_of(root))
    archive.repair_archive(crew_of(root), ME)
    assert_restored(path, was, damage)
    assert sorted(in_files(root)) == ["t1", "t2", "t3"]


def test_edits_of_a_person_are_recorded_and_an_entry_may_go_to_the_board_or_become_a_comment(root: Path) -> None:
    path = recorded_two(root)
    first, second = (text for text in path.read_text().split("  - id")[1:])
    head = path.read_text().split("  - id")[0]
    path.write_text(f"{head}  # of people\n  - id{first}  - id{second}")
    assert_recorded(root, path)
    path.write_text(head + "".join(f"# {line}\n" for line in f"  - id{first}".splitlines()) + f"  - id{second}")
    assert_recorded(root, path)
    board = Paths(root).state
    assert on_board(root) == []
    board.write_text(re.sub(r"^tasks:.*\n", lambda _: f"tasks:\n  - id{second}", board.read_text(), flags=re.MULTILINE))
    assert on_board(root) == ["t2"]
    path.write_text(head)
    assert_recorded(root, path)


def assert_recorded(root: Path, path: Path) -> None:
    say(opened(root), "a change")
    recorder.record_history(crew_of(root))
    assert recorded_archive.find_damaged(crew_of(root)) == {}
    assert board_history.read_archive_file(crew_of(root).git, path.name) == path.read_bytes()


def test_a_lost_entry_is_appended_and_other_edits_of_the_file_stay(root: Path) -> None:
    add(root, "t3")
    path = recorded_two(root)
    close(root, "t3")
    move(root)
    head, lost, *others = path.read_text().split("  - id")
    damaged = "  - id".join([f"# of people\n{head}", *others])
    path.write_text(damaged)
    assert recorded_archive.find_damaged(crew_of(root)).keys() == {path.name}
    restore_verb.restore(crew_of(root), last_good=True)
    assert path.read_text() == f"{damaged}  - id{lost}"


def test_a_file_that_changed_since_it_was_judged_is_not_replaced(root: Path) -> None:
    path = recorded_two(root)
    path.write_text("")
    plan = archive_damage.Mending(path.name, b"", b"tasks:\n")
    path.write_text("tasks: # of a person\n")
    with pytest.raises(BoardInconsistent, match="has changed meanwhile"):
        archive_damage._mend(crew_of(root), plan)
    assert path.read_text() == "tasks: # of a person\n"


@pytest.mark.campaign
def test_a_kill_at_any_point_of_a_restoration_loses_no_entry_and_the_next_one_ends_it(
    root: Path, tmp_path: Path
) -> None:
    add(root, "t3")
    path = recorded_two(root)
    close(root, "t3")
    move(root)
    # The history does not have t3 yet.
    head, _, *others = path.read_text().split("  - id")
    path.write_text("  - id".join([head, *others]))
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: archive_damage.restore_files(crew_of(copy), ME), tmp_path / "trace")
    assert {f"renamed.{path.name}.damaged#1", f"renamed.{path.name}#1"} <= set(points)
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: archive_damage.restore_files(crew_of(copy), ME), point)), point
        assert "t3" in in_files(copy), point
        archive_damage.restore_files(crew_of(copy), ME)
        assert sorted(in_files(copy)) == ["t1", "t2", "t3"], point


def test_a_directory_at_the_name_of_an_archive_file_is_kept_and_the_file_is_written(root: Path) -> None:
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
        context.setattr(recorded_archive, "find_losses", lambda crew, names: {})
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
    return [row for row in status_verb.status(crew_of(root))["alerts"] if row["kind"] == "archive_damaged"]


def no_use(*values: object) -> bytes:
    raise AssertionError(f"not to be called: {values}")


def test_an_alarm_about_a_damaged_file_compares_it_once_and_searches_no_history(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded_two(root)
    path.write_text(without_first(path.read_text()))
    monkeypatch.setattr(board_history, "iter_archive_versions", no_use)
    [first] = archive_alarms(root)
    assert (first["about"], first["next"]) == (path.name, "liza archive --repair")
    monkeypatch.setattr(board_history, "read_object", no_use)
    assert archive_alarms(root) == [first]
    # The board knows nothing of the archive.
    with crew_of(root).change(ME, "test") as tx:
        tx.state = replace(tx.state, archived=ArchiveSummary())
    assert archive_alarms(root) == [first]


def test_a_damaged_file_is_reported_although_git_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded_two(root)
    path.write_text("")

    def fail(git: object) -> dict[str, str]:
        raise GitFailed("git ls-tree took longer than 60 s and was killed", "git fsck")

    monkeypatch.setattr(board_history, "list_archive", fail)
    [alarm] = archive_alarms(root)
    assert "cannot be compared with the history: git ls-tree took longer" in str(alarm["message"])


def test_archive_files_that_a_person_renames_or_joins_are_not_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_files(root, monkeypatch)
    add(root, "t3")
    first = first.rename(first.with_name("2020-01.yaml"))
    assert recorded_archive.find_damaged(crew_of(root)) == {}
    close(root, "t3")
    assert move(root) == ("t3",)
    first.write_text(first.read_text() + second.read_text().partition("tasks:\n")[2])
    second.unlink()
    assert recorded_archive.find_damaged(crew_of(root)) == {}
    assert archive_damage.restore_files(crew_of(root), ME).names == ()
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"
    recorder.record_history(crew_of(root))
    assert recorded_archive._read_stamps(crew_of(root)).keys() == set(archive_files.list_names(Paths(root)))
    first.unlink()
    assert recorded_archive.find_damaged(crew_of(root)).keys() == {first.name}


def test_a_damaged_object_of_git_does_not_look_like_a_file_that_was_never_recorded(root: Path) -> None:
    path = recorded_two(root)
    crew = crew_of(root)
    before = board_history.list_archive(crew.git)
    blob = root / ".git/objects" / before[path.name][:2] / before[path.name][2:]
    blob.unlink()
    path.write_text(without_first(path.read_text()))
    with pytest.raises(GitFailed):
        board_history.read_archive_file(crew.git, path.name)
    say(opened(root), "a change")
    recorder.record_history(crew_of(root))
    assert board_history.list_archive(crew_of(root).git) == before
    assert "cannot be compared" in recorded_archive.find_damaged(crew_of(root))[path.name].reason


def test_a_torn_move_stops_no_new_task(root: Path) -> None:
    path = recorded_two(root)
    add(root, "t3")
    with crew_of(root).change(ME, "test") as tx:
        tx.state = tx.state.with_task(replace(tx.state.tasks[-1], description="ü"))
    close(root, "t3")
    assert killed(child(lambda: move(root), f"written.{path.name}#1"))
    # Torn within a character: the file cannot be read as an archive now.
    path.write_bytes(path.read_bytes().partition("ü".encode())[0] + "ü".encode()[:1])
    assert Paths(root).archive_intent.exists()
    assert archive_alarms(root) == []
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"
    assert not Paths(root).archive_intent.exists()
    assert in_files(root) == ["t1", "t2"]


def test_an_id_that_is_not_utf8_is_refused_as_one(root: Path) -> None:
    move(root)
    crew = crew_of(root)
    state = crew.board.read()
    archived_tasks.refuse_archived(crew, state, ["\udcff"])
    with pytest.raises(UsageError):
        archived_tasks.with_archived(crew, state, "\udcff")


def test_a_repair_forgets_a_missing_file_that_the_history_does_not_have_either(root: Path) -> None:
    path = recorded_two(root)
    git(root, "update-ref", "-d", "refs/liza/blackboard")
    path.unlink()
    [alarm] = archive_alarms(root)
    assert alarm["next"] == "liza archive --repair"
    with pytest.raises(BoardInconsistent, match="no task can be added"):
        task_verb.add(crew_of(root), [TaskFields("t9", "d")])
    done = archive_verb.repair(crew_of(root))
    assert done.details["forgotten"] == [path.name]
    assert done.details["vanished"] == ["t1", "t2"]
    assert f"{path.name} is missing" in done.message
    assert archive_alarms(root) == []
    assert task_verb.add(crew_of(root), [TaskFields("t9", "d")]).task == "t9"


def test_a_repair_names_a_task_that_vanished_before_it_was_recorded(root: Path) -> None:
    move(root)
    path = the_file(root)
    before = path.read_text()
    merged(root, "t2")
    move(root)
    # The buffer of an editor from before the second move.
    path.write_text(before)
    done = archive_verb.repair(crew_of(root))
    assert done.details["vanished"] == ["t2"]
    assert "liza history t2 -p" in done.message
    assert archive_verb.repair(crew_of(root)).details["vanished"] == []


def test_the_last_lines_of_the_last_entry_may_be_deleted(root: Path) -> None:
    path = recorded_two(root)
    text = path.read_text()
    path.write_text(text[: text.rindex("    merge_commit:")])
    assert_recorded(root, path)


def test_a_file_that_is_emptied_before_its_copies_become_comments_is_reported(root: Path) -> None:
    archived_twice(root)
    path = the_file(root)
    [(name, offsets)] = ArchiveIndex(Paths(root)).find_copies().items()
    path.write_text("")
    with pytest.raises(BoardInconsistent, match="has changed meanwhile"):
        archive_files.comment_out(Paths(root), name, offsets)
    path.write_text("tasks:\n")
    assert archive_files.comment_out(Paths(root), name, offsets).after == b"tasks:\n"
