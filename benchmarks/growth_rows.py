"""Rows of growth: the same figures from 10 to 10,000 tasks, 1 to 64 supervisors, 100,000 revisions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from benchmarks import board_rows, crew_rows
from benchmarks.options import Options
from benchmarks.projects import INSTANT, history_size, project
from benchmarks.rows import Row, summarize
from benchmarks.running_crews import RunningCrew, resident_memory
from benchmarks.sample_boards import TASK, flip
from benchmarks.timing import BARE, milliseconds, run_process
from liza.board import revisions
from liza.board.revisions import RevisionRecord
from liza.crew.crew import find_crew
from liza.crew.recorder import record_history
from liza.git import board_history
from liza.git.board_history import NewRevision
from liza.tasks.archive import archive_closed
from tests.journeys.crews import BIN, Crew

GROUP = "growth"
SIZES = (10, 100, 1_000, 10_000)
SUPERVISORS = (1, 4, 16, 64)
BATCH = 2_000  # revisions that are handed to git at once
START = datetime(2026, 1, 1, tzinfo=UTC)


def measure_sizes(options: Options) -> Iterator[Row]:
    """A transition, a read, `status`, `validate` and a wake-up with ever more live tasks."""
    for tasks in SIZES[:2] if options.quick else SIZES:
        yield board_rows.measure_transition(options, tasks, None, GROUP)
        yield from board_rows.measure_reading(options, tasks, GROUP)
        yield board_rows.measure_wake_up(options, tasks, GROUP)
        yield measure_status(options, tasks)


def fill_board(crew: Crew, tasks: int, task_status: str = "UNCLAIMED", first: int = 0) -> None:
    """Replace the tasks on the board by this many."""
    head, _, rest = crew.board.read_text().partition("\ntasks:")
    # What follows the tasks begins at the next line that is not indented.
    following = rest.partition("\n")[2].splitlines(keepends=True)
    while following and following[0].startswith((" ", "-")):
        following.pop(0)
    entries = "".join(TASK.format(n=first + number) for number in range(tasks))
    entries = entries.replace("status: UNCLAIMED", f"status: {task_status}")
    crew.board.replace_text("human:bench", f"{head}\ntasks:\n{entries}{''.join(following)}")


def describe(crew: Crew, number: int) -> float:
    """Change the description of the first task; return when that was on the board."""
    with crew.board.transaction("human:bench", "edit") as tx:
        task = tx.state.tasks[0]
        tx.state = tx.state.with_task(msgspec.structs.replace(task, description=f"Write change {number}."))
    return time.monotonic()


def measure_status(options: Options, tasks: int) -> Row:
    """`status --json` as a process, with this many live tasks."""
    with project(options) as crew:
        fill_board(crew, tasks)
        record_history(find_crew(crew.root))
        words = [str(BIN / "liza"), "status", "--json"]
        run_process(words, crew.root)
        rounds = options.rounds(11 if tasks <= 1000 else 5)
        taken = [(run_process(words, crew.root), run_process(BARE, crew.root)) for _ in range(rounds)]
    rivals = {"python -I -S -c pass": summarize([bare.cpu for _, bare in taken])}
    own = summarize([spent.cpu for spent, _ in taken])
    return Row(GROUP, f"status --json, {tasks} tasks: CPU", "ms", own, rivals, series="status", x=float(tasks))


def measure_supervisors(options: Options) -> Iterator[Row]:
    """CPU per revision with ever more supervisors: it must grow with their number, not with its square."""
    for agents in SUPERVISORS[:2] if options.quick else SUPERVISORS:
        yield crew_rows.measure_revisions(options, agents, living=False, target=None, group=GROUP)


def measure_memory(options: Options) -> Iterator[Row]:
    """Memory of a supervisor while the board changes 10,000 times."""
    step, steps = (50, 2) if options.quick else (1_000, 10)
    with project(options) as crew:
        fill_board(crew, 50, "DRAFT")
        with RunningCrew(crew, crew.script("agent", INSTANT), ["coder-1"]) as running:
            running.wait_started()
            running.wait_quiet()
            (pid,) = running.pids
            sizes = [resident_memory(pid)]
            for _ in range(steps):
                for number in range(step):
                    _change_priority(crew, f"task-{number % 50}", number)
                running.wait_quiet(0.5)
                sizes.append(resident_memory(pid))
    name = f"memory of a supervisor over {step * steps} transitions"
    for number, size in enumerate(sizes):
        done = number * step
        yield Row(GROUP, f"memory of a supervisor, {done} transitions", "MB", summarize([size]),
                  target=40.0 if number == steps else None, series="memory", x=float(done))  # fmt: skip
    growth = summarize([sizes[-1] - sizes[min(1, steps)]])
    yield Row(GROUP, f"{name}: growth after the first {step}", "MB", growth, target=1.0)


def _change_priority(crew: Crew, task_id: str, number: int) -> None:
    import msgspec

    with crew.board.transaction("human:bench", "edit", task=task_id) as tx:
        task = tx.state.task(task_id)
        assert task is not None
        tx.state = tx.state.with_task(msgspec.structs.replace(task, priority=1 + (task.priority + number % 2) % 5))


def measure_revisions(options: Options) -> Iterator[Row]:
    """`history`, `restore` and `validate` as processes, after many revisions; the size of history and journal."""
    revisions = 2_000 if options.quick else 100_000
    with project(options) as crew:
        fill_board(crew, 10)
        make_revisions(crew, revisions)
        options.log(f"{revisions} revisions made")
        flip(crew.board, "task-0")
        record_history(find_crew(crew.root))
        words = {
            "history": ("history",),
            "history of a task": ("history", "task-7"),
            "validate": ("validate",),
            "restore --last-good": ("restore", "--last-good"),
        }
        for name, arguments in words.items():
            taken = []
            for _ in range(options.rounds(7)):
                if name.startswith("restore"):
                    crew.paths.state.write_text("tasks: [")
                    # A board that was damaged a moment ago may still be written: every reader waits for that.
                    os.utime(crew.paths.state, (0, 0))
                taken.append(run_process([str(BIN / "liza"), *arguments], crew.root).wall)
            yield Row(GROUP, f"{name}, {revisions} revisions", "ms", summarize(taken), target=500.0)
        history, journal = history_size(crew)
    rivals = {"the journal": summarize([journal])}
    name = f"history on disk, {revisions} revisions in batches of {BATCH}"
    yield Row(GROUP, name, "MB", summarize([history]), rivals, target=3 * journal)


def make_revisions(crew: Crew, number: int) -> None:
    """Write ``number`` revisions into the journal and the history, as a recorder does; the board has the last one."""
    opened = find_crew(crew.root)
    record_history(opened)
    state, text = crew.board.read(), crew.board.read_text()
    first = state.revision + 1
    for start in range(first, first + number, BATCH):
        batch = [_new_revision(text, revision) for revision in range(start, min(start + BATCH, first + number))]
        board_history.record_revisions(opened.git, batch)
        _append_records(crew.paths.journal, batch)
    # The board follows: its own next revision is above those of the journal.


def _new_revision(text: str, revision: int) -> NewRevision:
    head, _, rest = text.partition("\nrevision: ")
    changed = f"{head}\nrevision: {revision}\n{rest.partition(chr(10))[2]}"
    task = f"task-{revision % 10}"
    subject = revisions.format_subject(_record(revision, task))
    return NewRevision(revision, subject, "", START + timedelta(seconds=revision), "coder-1.7", changed)


def _record(revision: int, task: str) -> RevisionRecord:
    when = (START + timedelta(seconds=revision)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return RevisionRecord(revision, when, "coder-1.7", "report", task, sha256="0" * 64)


def _append_records(journal: Path, batch: list[NewRevision]) -> None:
    with journal.open("ab") as file:
        for entry in batch:
            file.write(revisions.format_record(_record(entry.revision, f"task-{entry.revision % 10}")))


def measure_archive(options: Options) -> Iterator[Row]:
    """`status --json` and `task show` beside ever more archived tasks, and the cost of archiving one."""
    total, batch = (200, 100) if options.quick else (5_000, 1_000)
    taken = []
    with project(options) as crew:
        for first in range(0, total, batch):
            fill_board(crew, batch, "ABANDONED", first)
            opened = find_crew(crew.root)
            taken.append(milliseconds(lambda: archive_closed(opened, "human:bench")) / batch)  # noqa: B023
            record_history(opened)
        fill_board(crew, 50, first=total)
        options.log(f"{total} tasks archived")
        for name, words in (
            ("status --json, 50 tasks", ("status", "--json")),
            ("task show of an archived task", ("task", "show", "task-7", "--json")),
        ):
            values = [run_process([str(BIN / "liza"), *words], crew.root).cpu for _ in range(options.rounds(9))]
            yield Row(GROUP, f"{name}, {total} archived: CPU", "ms", summarize(values))
    yield Row(GROUP, f"archive, per task of {batch} at once", "ms", summarize(taken))


def measure(options: Options) -> Iterator[Row]:
    yield from measure_sizes(options)
    yield from measure_supervisors(options)
    yield from measure_memory(options)
    yield from measure_revisions(options)
    yield from measure_archive(options)
