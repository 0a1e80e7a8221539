"""The crew of the example board, at work half a minute after its last revision, and what commands print about it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.board.text import document
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew.crew import Crew
from liza.model.derived import find_current_work
from liza.model.history_events import HistoryEvent
from liza.model.model import State, Status, Task
from liza.model.narration import LIZA, find_news
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.model.value_classes import replace
from liza.printing import render_crew, render_task
from liza.printing.columns import cell_width, paint, wrap_text
from liza.printing.render_metrics import format_summary
from liza.printing.render_patch import EventList
from liza.printing.render_session import SessionStyle, format_session
from liza.programs.liveness import RunningSession
from liza.programs.session.run_directory import AgentWait, RunRecord, write_wait
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.system.locks import Lock
from liza.system.processes import identify_self
from liza.ui.facts import gather
from liza.ui.rules.drawing import draw as draw_picture
from liza.ui.rules.lines import Line, Span, Target, TargetKind, fit_height
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import ScreenName, Wanted
from liza.usage import ledger
from liza.usage.costs import task_cost_text
from liza.view.history import recall_events
from liza.view.logs import find_newest_run
from liza.view.metrics import metrics
from liza.view.session_log import read_recent
from liza.view.status import look
from liza.view.task_rows import show_task
from tests.pictures.drawing import THEMES, draw
from tests.pictures.example_session import write_session

ROOT = Path(__file__).parent.parent.parent
DIRECTORY = ROOT / "specs" / "pictures"
BOARD = ROOT / ".liza.example" / "state.yaml"
WIDTHS = (80, 120)
"""Columns of the terminals."""
SESSIONS = {
    "coder-1.1": (942.0, TokenUsage(input=410_000, cached=360_000, output=21_300, cost=1.84)),
    "code-reviewer-1.1": (347.0, TokenUsage(input=120_000, cached=88_000, output=6_400, cost=0.62)),
    "coder-1.2": (459.0, TokenUsage(input=198_000, cached=171_000, output=9_800, cost=0.91)),
    "code-reviewer-1.2": (261.0, TokenUsage(input=96_000, cached=70_000, output=4_100, cost=0.47)),
}
"""Seconds and usage of the sessions of the task that is merged first."""
PROVED = 'proof: {outcome: proved, command: "pytest -q", setup: "pip install -e ."}'
LAST_LINE = datetime(2026, 11, 20, 9, 15, tzinfo=UTC)
"""The picture of `liza up` ends here: it fits on a screen."""
LOGGED = "coder-1"
"""The agent whose session has output."""
TRIES = (HistoryEvent.CLAIM, HistoryEvent.RESUME)


class PictureClock:
    """A clock that stands half a minute after the last revision of the example board."""

    def now(self) -> datetime:
        return datetime(2026, 11, 20, 10, 0, 30, tzinfo=UTC)

    def monotonic(self) -> float:
        return 1000.0


REASON = "payment-terms was rejected 3 times in a row; the last: a test was marked skip"
TROUBLE = f"""\
    - time: "2026-11-20T09:56:00Z"
      trigger: review_loop
      severity: checkpoint
      subject: "payment-terms"
      detail: "{REASON}"
      tasks: ["payment-terms"]
      evidence: ["2026-11-20T09:55:00Z payment-terms reject"]
"""
"""An open trip of the circuit breaker, as an entry of the board."""
LIMIT = AgentWait(reason="the usage limit of the account is reached", until=datetime(2026, 11, 20, 10, 40, tzinfo=UTC))


@contextmanager
def open_example(root: Path, *, is_troubled: bool = False) -> Iterator[Crew]:
    """Yield a crew in an empty directory, with the example board and its agents at work.

    ``is_troubled``: the circuit breaker has tripped, and coder-2 waits for the end of a usage limit.
    """
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "invoice.md").write_text("# Invoices\n")
    for words in ("init -q -b main", "add .", "-c commit.gpgsign=false commit -q -m Start"):
        subprocess.run(["git", *words.split()], cwd=root, check=True)
    init(root, InitOptions(goal="Customers can pay by invoice", test="true", no_proof=True, program="script:/bin/true"))
    crew = Crew(Paths(root), PictureClock())
    text = BOARD.read_text(encoding="utf-8").replace("config:\n", f"config:\n  {PROVED}\n")
    if is_troubled:
        untroubled = "circuit_breaker:\n  status: OK\n  history:\n"
        text = text.replace(untroubled, f"{untroubled.replace('OK', 'TRIGGERED')}{TROUBLE}")
    crew.paths.state.write_text(text, encoding="utf-8")
    state = document.load_state(text)
    confirmed_settings.confirm_settings(crew.paths, settings.confirmable_values(state.config), state.config)
    for task in state.tasks:
        if task.worktree:
            words = ["git", "worktree", "add", "-q", "--detach", str(crew.paths.slot(task.worktree))]
            subprocess.run(words, cwd=root, check=True)
    with ExitStack() as locks:
        for name, agent in state.agents.items():
            if agent.status != "OFFLINE":
                locks.enter_context(Lock(crew.paths.supervisor_lock(name)))
                _start_session(crew, state, name)
        for run, (seconds, used) in SESSIONS.items():
            ledger.append_entry(crew.paths, _spent(run, seconds, used, state.sprint.id))
        if is_troubled:
            crew.board.raise_signal("CHECKPOINT", f"circuit breaker, review_loop: {REASON}")
            write_wait(crew.paths, "coder-2", LIMIT)
        yield crew


def _spent(run: str, seconds: float, used: TokenUsage, sprint: str) -> LedgerEntry:
    """The ledger's entry of a session of the task that is merged first."""
    return LedgerEntry(
        run=run,
        time=datetime(2026, 11, 20, 8, 38, tzinfo=UTC),
        kind="work",
        program="claude",
        outcome="submit",
        seconds=seconds,
        task="invoice-model",
        sprint=sprint,
        used=used,
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
    program = state.agents[agent].program
    directory.create(
        RunRecord(agent=agent, run=work.run, kind=work.kind, started=started, task=work.task, program=program)
    )
    directory.mark_ready(started, "x")
    if agent == LOGGED:
        write_session(crew, work.run, started)
    running = RunningSession(shim=identify_self(), child=identify_self(), time=started)
    (directory.path / "session.json").write_bytes(msgspec.json.encode(running))


def print_status(crew: Crew, width: int) -> str:
    """What `liza status` prints."""
    return wrap_text(render_crew.format_status(look(crew), True), width)


def print_task(crew: Crew, width: int) -> str:
    """What `liza task show` prints about the task that was rejected, fixed and merged."""
    return wrap_text(render_task.format_task(show_task(crew, "invoice-model"), True), width)


def print_logs(crew: Crew, width: int) -> str:
    """What `liza logs` prints of the session at work."""
    events, _ = read_recent(crew, [find_newest_run(crew, LOGGED)], 200, None)
    return "\n".join(format_session(events, SessionStyle(width, with_colours=True)))


def print_history(crew: Crew, width: int) -> str:
    """What `liza history -n 16` prints."""
    past = recall_events(crew, None, 16)
    return EventList(crew.clock.now(), width, True).format(reversed(past.items))


def print_metrics(crew: Crew, width: int) -> str:
    """What `liza metrics` prints."""
    return wrap_text(format_summary(metrics(crew)), width)


def print_up(crew: Crew, width: int) -> str:
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
                lines.append(wrap_text(start + news.text + cost, width, cell_width(start)))
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


PICTURES = {
    "status": print_status,
    "up": print_up,
    "task-show": print_task,
    "logs": print_logs,
    "history": print_history,
    "metrics": print_metrics,
}
TITLES = {
    "status": "liza status",
    "up": "liza up",
    "task-show": "liza task show invoice-model",
    "logs": f"liza logs {LOGGED}",
    "history": "liza history -n 16",
    "metrics": "liza metrics",
}


SIZES = ((80, 24), (160, 50))
"""Columns and rows of the terminals on which the screens of `liza ui` are drawn."""


CHOSEN = Target(TargetKind.TASK, "vat-rates")
"""The line under the cursor."""


def print_screen(crew: Crew, columns: int, rows: int, screen: ScreenName) -> str:
    """What `liza ui` shows on a screen."""
    view = PictureView(columns=columns, rows=rows, wanted=Wanted(screen), chosen=CHOSEN)
    drawing = draw_picture(gather(crew, view.wanted), view)
    body, side = fit_height(drawing.body, view.body_rows), drawing.side or (Line(),) * view.body_rows
    lines = [*drawing.header, *(_beside(*pair, view) for pair in zip(body, side, strict=True)), drawing.footer]
    return "\n".join("".join(paint(span.text, span.tone, True) for span in line.spans) for line in lines)


def _beside(line: Line, side: Line, view: PictureView) -> Line:
    if not view.side_columns:
        return line
    return Line((*line.spans, Span(" " * (view.columns - view.side_columns - cell_width(line.text))), *side.spans))


def draw_screens(crew: Crew) -> Iterator[tuple[str, str, str, str]]:
    """Yield the pictures of `liza ui`, as ``draw_all`` does."""
    for screen in (ScreenName.NOW, ScreenName.AGENTS, ScreenName.QUEUE):
        for columns, rows in SIZES[: 2 if screen is ScreenName.NOW else 1]:
            output = print_screen(crew, columns, rows, screen)
            for theme in THEMES:
                name = f"ui-{screen.lower()}-{columns}-{theme}"
                yield name, draw(name, "liza ui", output, columns, theme), "liza ui", output


def draw_pictures(directory: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield all pictures; the crews that they show are made in ``directory``."""
    with open_example(directory / "shop") as crew:
        yield from draw_all(crew)
    with open_example(directory / "troubled" / "shop", is_troubled=True) as crew:
        yield from draw_screens(crew)


def draw_all(crew: Crew) -> Iterator[tuple[str, str, str, str]]:
    """Yield each picture of a command: its name, its SVG, its title and the output that it shows."""
    for name, print_output in PICTURES.items():
        for width in WIDTHS:
            output = print_output(crew, width)
            for theme in THEMES:
                picture = f"{name}-{width}-{theme}"
                yield picture, draw(picture, TITLES[name], output, width, theme), TITLES[name], output
