"""The crew of the example board, at work half a minute after its last revision, and what commands print about it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.board.text import document
from liza.cli.render import render_crew, render_task
from liza.cli.render.columns import cell_width, wrap_text
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings
from liza.crew.usage_summary import task_cost_text
from liza.programs.session.run_directory import RunRecord
from liza.programs.session.session_process import RunningSession
from liza.programs.usage import ledger
from liza.rules import settings
from liza.rules.history_events import HistoryEvent
from liza.rules.model import State, Status, Task
from liza.rules.owned_work import find_current_work
from liza.rules.paths import Paths
from liza.rules.reports.narration import LIZA, find_news
from liza.rules.sessions.spending import LedgerEntry
from liza.rules.value_classes import replace
from liza.system.locks import Lock
from liza.system.processes import identify_self
from liza.verbs.init import InitOptions, init
from liza.verbs.show_task import show_task
from liza.verbs.status import look

ROOT = Path(__file__).parent.parent.parent
DIRECTORY = ROOT / "specs" / "pictures"
BOARD = ROOT / ".liza.example" / "state.yaml"
WIDTH = 118
"""Columns of the terminal."""
SESSIONS = {"coder-1.1": 942.0, "code-reviewer-1.1": 347.0, "coder-1.2": 459.0, "code-reviewer-1.2": 261.0}
"""Seconds of the sessions of the task that is merged first."""
PROVED = 'proof: {outcome: proved, command: "pytest -q", setup: "pip install -e ."}'
LAST_LINE = datetime(2026, 11, 20, 9, 15, tzinfo=UTC)
"""The picture of `liza up` ends here: it fits on a screen."""
TRIES = (HistoryEvent.CLAIM, HistoryEvent.RESUME)


class PictureClock:
    """A clock that stands half a minute after the last revision of the example board."""

    def now(self) -> datetime:
        return datetime(2026, 11, 20, 10, 0, 30, tzinfo=UTC)

    def monotonic(self) -> float:
        return 1000.0


@contextmanager
def open_example(root: Path) -> Iterator[Crew]:
    """Yield a crew in an empty directory, with the example board and its agents at work."""
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "invoice.md").write_text("# Invoices\n")
    for words in ("init -q -b main", "add .", "-c commit.gpgsign=false commit -q -m Start"):
        subprocess.run(["git", *words.split()], cwd=root, check=True)
    init(root, InitOptions(goal="Customers can pay by invoice", test="true", no_proof=True, program="script:/bin/true"))
    crew = Crew(Paths(root), PictureClock())
    text = BOARD.read_text(encoding="utf-8").replace("config:\n", f"config:\n  {PROVED}\n")
    crew.paths.state.write_text(text, encoding="utf-8")
    state = document.load_state(text)
    confirmed_settings.confirm_settings(crew.paths, settings.confirmable_values(state.config), state.config)
    for task in state.tasks:
        if task.worktree:
            crew.paths.slot(task.worktree).mkdir(parents=True)
    with ExitStack() as locks:
        for name, agent in state.agents.items():
            if agent.status != "OFFLINE":
                locks.enter_context(Lock(crew.paths.supervisor_lock(name)))
                _start_session(crew, state, name)
        for run, seconds in SESSIONS.items():
            ledger.append_entry(crew.paths, _spent(run, seconds))
        yield crew


def _spent(run: str, seconds: float) -> LedgerEntry:
    """The ledger's entry of a session of the task that is merged first."""
    return LedgerEntry(
        run=run,
        time=datetime(2026, 11, 20, 8, 38, tzinfo=UTC),
        kind="work",
        program="claude",
        outcome="submit",
        seconds=seconds,
        task="invoice-model",
    )


def _start_session(crew: Crew, state: State, agent: str) -> None:
    """Write the files of a living session: its process is this one."""
    work = find_current_work(state, agent)
    if work is None:
        return
    task = state.task(work.task) if work.task else None
    since = next((event.time for event in task.history if event.run == work.run), None) if task else None
    started = since or datetime(2026, 11, 20, 9, 59, 50, tzinfo=UTC)
    directory = crew.run_dir(work.run)
    directory.create(RunRecord(agent=agent, run=work.run, kind=work.kind, started=started, task=work.task))
    running = RunningSession(shim=identify_self(), child=identify_self(), time=started)
    (directory.path / "session.json").write_bytes(msgspec.json.encode(running))


def print_status(crew: Crew) -> str:
    """What `liza status` prints."""
    return wrap_text(render_crew.format_status(look(crew), True), WIDTH)


def print_task(crew: Crew) -> str:
    """What `liza task show` prints about the task that was rejected, fixed and merged."""
    return wrap_text(render_task.format_task(show_task(crew, "invoice-model"), True), WIDTH)


def print_up(crew: Crew) -> str:
    """What `liza up` printed while the history of the example board happened."""
    final = crew.board.read()
    times = sorted({event.time for task in final.tasks for event in task.history if event.time <= LAST_LINE})
    lines, before = [], replace(final, tasks=())
    for when in times:
        after = replace(final, tasks=_tasks_at(final, when))
        for news in find_news(before, after):
            if news.who in final.agents and not news.is_detail:
                cost = f"; {task_cost_text(crew, after, news.merged)}" if news.merged else ""
                start = render_crew.format_feed_start(LIZA if news.liza else news.who, when, True)
                lines.append(wrap_text(start + news.text + cost, WIDTH, cell_width(start)))
        before = after
    return "\n".join(lines)


def _tasks_at(final: State, when: datetime) -> tuple[Task, ...]:
    """Tasks with the events up to a time; the number of the try is that of then."""
    tasks = []
    for task in final.tasks:
        history = tuple(event for event in task.history if event.time <= when)
        if history:
            tries = sum(event.event in TRIES for event in history)
            is_blocked = history[-1].event == HistoryEvent.BLOCK
            status_then = task.status if history == task.history else Status.BLOCKED if is_blocked else Status.UNCLAIMED
            asked = task.blocked_questions or tuple(answer.question for answer in task.answers)
            tasks.append(replace(task, history=history, iteration=tries, status=status_then, blocked_questions=asked))
    return tuple(tasks)


PICTURES = {"status": print_status, "up": print_up, "task-show": print_task}
TITLES = {"status": "liza status", "up": "liza up", "task-show": "liza task show invoice-model"}
