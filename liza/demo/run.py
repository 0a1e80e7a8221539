"""`liza demo`: run a planner, two coders and a reviewer on a small project, from the goal to the last merge."""

from __future__ import annotations

import queue
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liza.crew.caller import current_person
from liza.crew.crew import Crew, open_crew
from liza.demo import demo_crew
from liza.demo.demo_crew import DemoCrew, SupervisorEnded
from liza.git.runner import Git
from liza.model.errors import Refused
from liza.model.model import State, Status
from liza.model.narration import LIZA, find_news
from liza.model.paths import Paths, is_person
from liza.model.statuses import GoalStatus, task_word
from liza.model.value_classes import Mutable, replace
from liza.printing import columns, printing

TIME_LIMIT = 120.0
"""Seconds after which the demo fails and prints the unfinished tasks."""
FIRST_AGENTS = ("planner-1", "coder-1", "coder-2")
REVIEWER = "code-reviewer-1"
CONFLICTING_TASKS = ("price-currency", "price-discount")
"""Two tasks that change the same lines."""
ANSWERS = {"invoice-mail": "billing@shop.example"}
ANSWER_SECONDS = 30.0
"""Seconds that a person at a terminal has to answer the question; then the demo answers it."""
_COLOURS = {"you": "bold", "project": "plain"}


def run_demo(directory: Path | None) -> int:
    """Run the demo; return 0 when every task is merged, the board is valid and the tests of the merged code pass.

    Raises UsageError if the directory is not empty, Missing without git, Refused if the demo fails.
    """
    start = time.monotonic()
    root = demo_crew.choose_directory(directory)
    env = demo_crew.demo_environment()
    _print_line("project", f"a small shop in {root}")
    demo_crew.create_project(root)
    _init(root, env)
    if _is_watched():
        word = demo_crew.liza_word()
        _print_line("", f"watch it in another terminal: cd {shlex.quote(str(root))}; {word} ui (browser: {word} web)")
    crew = open_crew(root)
    _shorten_delays(crew)
    with demo_crew.interrupted_by_signals():
        try:
            _run_crew(crew, env)
        except KeyboardInterrupt:
            _print_line("", f"all agents are stopped; their work is in {crew.paths.slots} and on the branches task/*")
            raise
    return _report_end(crew, env, time.monotonic() - start)


def _is_watched() -> bool:
    """Whether a person sits at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _init(root: Path, env: Mapping[str, str]) -> None:
    words = ["init", demo_crew.GOAL, "--spec", demo_crew.SPEC, "--program", demo_crew.scripted_program("coder-1")]
    done = demo_crew.run_liza(words, root, env)
    if done.returncode != 0:
        raise Refused(f"liza init exited with {done.returncode}: {done.stderr.strip()}", "liza doctor")
    printing.print_now(done.stdout)


def _shorten_delays(crew: Crew) -> None:
    """Set the delays after a crash and a handoff to 0.5 s. The defaults are for real programs."""
    with crew.change(current_person(), "settings") as tx:
        config = replace(tx.state.config, restart_after_crash=0.5, restart_after_handoff=0.5)
        tx.state = replace(tx.state, config=config)


def _run_crew(crew: Crew, env: Mapping[str, str]) -> None:
    """Run the crew until the goal is reached. Raises Refused on a time-out or a failure."""
    news: queue.Queue[Any] = queue.Queue()
    patience = ANSWER_SECONDS if _is_watched() else 0.0
    end = time.monotonic() + TIME_LIMIT + patience
    with crew.board.watch() as watch, DemoCrew(crew, env, news) as supervisors:
        watch.subscribe(news)
        for agent in FIRST_AGENTS:
            supervisors.start(agent)
        _print_line("", f"started {', '.join(FIRST_AGENTS)}")
        progress = DemoProgress(crew, supervisors, crew.board.read(), patience)
        while not progress.update():
            _wait_for_event(news, end, progress)


def _wait_for_event(news: queue.Queue[Any], end: float, progress: DemoProgress) -> None:
    """Wait for an event, or until a question is due. Raises Refused after the limit, or if a supervisor ended."""
    until = end if progress.answers_at is None else min(end, progress.answers_at)
    try:
        events_seen = [news.get(timeout=max(0.0, until - time.monotonic()))]
    except queue.Empty:
        if until < end:
            return
        raise Refused(
            f"not finished after {TIME_LIMIT:.0f} s: {progress.describe_unfinished()}", _log_hint(progress.crew.paths)
        ) from None
    while not news.empty():
        events_seen.append(news.get())
    for ended in (event for event in events_seen if isinstance(event, SupervisorEnded)):
        lines = progress.supervisors.log_path(ended.agent).read_text(errors="replace").strip().splitlines()
        output = lines[-1] if lines else "no output"
        raise Refused(
            f"the supervisor of {ended.agent} ended with {ended.code}: {output}", _log_hint(progress.crew.paths)
        )


class DemoProgress(Mutable):
    """The state that was printed last, and the actions of the person in the demo.

    ``patience``: seconds that a real person has to answer. ``answers_at``: when the demo does, on the monotonic clock.
    """

    crew: Crew
    supervisors: DemoCrew
    last_state: State
    patience: float
    answers_at: float | None = None

    def update(self) -> bool:
        """Print the news, answer questions, start the reviewer; return whether the goal is reached. Raises Refused."""
        before, state = self.last_state, self.crew.board.read()
        self.last_state = state
        for news in (item for item in find_news(before, state) if not item.is_detail):
            _print_line("you" if is_person(news.who) else LIZA if news.liza else news.who, news.text)
        self._answer_questions(state)
        self._start_reviewer(state)
        return state.goal.status == GoalStatus.COMPLETED

    def _answer_questions(self, state: State) -> None:
        if not any(task.status is Status.BLOCKED for task in state.tasks):
            self.answers_at = None
        for task in state.tasks:
            if task.status is not Status.BLOCKED:
                continue
            if task.failed_by or task.answers or task.id not in ANSWERS:
                raise Refused(f"{task.id} is blocked: {task.blocked_reason}", f"liza task show {task.id}")
            if self._is_left_to_person():
                return
            command = ["answer", task.id, ANSWERS[task.id]]
            _print_line("you", f"type: liza {shlex.join(command)}")
            done = demo_crew.run_liza(command, self.crew.paths.root, self.supervisors.env)
            if done.returncode != 0 and self._is_blocked(task.id):
                raise Refused(f"liza {shlex.join(command)}: {done.stderr.strip()}", f"liza task show {task.id}")

    def _is_blocked(self, task_id: str) -> bool:
        """Whether a task still asks: a person may have answered in the same moment."""
        task = self.crew.board.read().task(task_id)
        return task is not None and task.status is Status.BLOCKED

    def _is_left_to_person(self) -> bool:
        """Whether the person has time left to answer the question. The first time it says how."""
        if self.patience and self.answers_at is None:
            self.answers_at = time.monotonic() + self.patience
            _print_line("", f"answer it there; in {self.patience:.0f} s the demo does")
        return self.answers_at is not None and time.monotonic() < self.answers_at

    def _start_reviewer(self, state: State) -> None:
        """Start the reviewer once both conflicting tasks have begun.

        Nothing is merged without a reviewer, so both tasks start at the same commit and must conflict.
        """
        started = [task for name in CONFLICTING_TASKS if (task := state.task(name)) and task.base_commit]
        if len(started) == len(CONFLICTING_TASKS) and REVIEWER not in self.supervisors.started_agents():
            self.supervisors.start(REVIEWER)
            _print_line(
                "", f"started {REVIEWER}: {' and '.join(CONFLICTING_TASKS)} change the same lines, and both have begun"
            )

    def describe_unfinished(self) -> str:
        """Return the unmerged tasks with status and agent; if all are merged, what the planner has to do."""
        state = self.crew.board.read()
        tasks = [task for task in state.tasks if task.status is not Status.MERGED]
        named = [f"{task.id} ({task_word(task.status)}, {task.assigned_to or 'not assigned'})" for task in tasks]
        return ", ".join(named) or (
            "the planner has not completed the goal" if state.tasks else "the planner has not added tasks"
        )


def _report_end(crew: Crew, env: Mapping[str, str], seconds: float) -> int:
    """Print the board, the merges and hints; return 0. Raises Refused if a check fails."""
    root = crew.paths.root
    state = crew.board.read()
    board = demo_crew.run_liza(["status"], root, env)
    printing.print_now(f"\n{board.stdout}{board.stderr}")
    git, branch = Git(root), state.config.integration_branch
    merged = git.out("log", "--first-parent", "--format=  %h %s", branch)
    printing.print_now(f"\nMerged (git log --first-parent {branch}):\n{merged}\n")
    failures = demo_crew.find_failures(crew, env)
    if failures:
        raise Refused("; ".join(failures), _log_hint(crew.paths))
    printing.print_now(
        f"{len(state.tasks)} tasks merged in {seconds:.1f} s and {state.revision} revisions of the board; "
        f"`liza validate` and the tests on {branch} pass. No process of the crew is left.\n"
    )
    _print_hints(root)
    return 0


def _print_hints(root: Path) -> None:
    liza = demo_crew.liza_word()
    rows = [
        [f"  {liza} history invoice-model -p", "how a rejected task was fixed, one commit per step"],
        [f"  {liza} task show invoice-mail", "a question, its answer, and the result"],
        ["  git diff main...integration", "the work of the crew; your own branch is unchanged"],
    ]
    printing.print_now(f"Look around:  cd {shlex.quote(str(root))}\n{columns.align_columns(rows)}")


def _log_hint(paths: Paths) -> str:
    return f"cd {shlex.quote(str(paths.root))} && liza status"


def _print_line(who: str, what: str) -> None:
    printing.print_row(
        f"  {columns.paint(f'{who:<16}', _COLOURS.get(who, 'cyan'), printing.wants_colours())}",
        columns.strip_controls(what),
    )
