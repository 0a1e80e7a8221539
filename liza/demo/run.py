"""`liza demo`: one planner, two coders and one reviewer on a small project, from the goal to the last merge."""

from __future__ import annotations

import queue
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from liza.board import events
from liza.cli.render import columns, printing
from liza.crew.caller import current_person
from liza.crew.crew import Crew, open_crew
from liza.crew.liza_path import liza_path
from liza.demo import checks, demo_crew, shop_project
from liza.demo.demo_crew import DemoCrew, SupervisorEnded
from liza.repo.runner import Git
from liza.rules.errors import Refused
from liza.rules.model import State, Status
from liza.rules.reports.narration import LIZA, find_news

TIME_LIMIT = 120.0
"""Seconds after which the demo says what it still waits for, and ends."""
FIRST_AGENTS = ("planner-1", "coder-1", "coder-2")
REVIEWER = "code-reviewer-1"
CONFLICTING_TASKS = ("price-currency", "price-discount")
"""Two tasks that change the same lines."""
ANSWERS = {"invoice-mail": "billing@shop.example"}
_COLOURS = {"you": "bold", "project": "plain"}


def run_demo(directory: Path | None) -> int:
    """Show it; 0 when every task is merged, the board is valid and the merged code's tests pass, else 1.

    Raises Usage for a directory that is not empty, Missing without git.
    """
    began = time.monotonic()
    root = shop_project.choose_directory(directory)
    env = demo_crew.demo_environment()
    _print_line("project", f"a small shop in {root}")
    shop_project.create_project(root)
    _init(root, env)
    crew = open_crew(root)
    _shorten_delays(crew)
    with _interrupted_by_signals():
        try:
            _run_crew(crew, env)
        except KeyboardInterrupt:
            _print_line("", f"all stopped; the work is in {root}/.worktrees and on task/*")
            raise
    return _report_end(crew, env, time.monotonic() - began)


def _init(root: Path, env: Mapping[str, str]) -> None:
    words = ["init", shop_project.GOAL, "--spec", shop_project.SPEC, "--program", demo_crew.scripted_program("coder-1")]
    done = demo_crew.run_liza(words, root, env)
    if done.returncode != 0:
        raise Refused(f"liza init said {done.returncode}: {done.stderr.strip()}", "liza doctor")
    printing.print_now(done.stdout)


def _shorten_delays(crew: Crew) -> None:
    """Real programs deserve a rest after a crash; nobody should watch one here."""
    with crew.change(current_person(), "settings") as tx:
        config = replace(tx.state.config, restart_after_crash=0.5, restart_after_handoff=0.5)
        tx.state = replace(tx.state, config=config)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """TERM and HUP end the demo as Ctrl+C does: by way of everything that has to be stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = [(number, signal.signal(number, interrupt)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _run_crew(crew: Crew, env: Mapping[str, str]) -> None:
    """From the first supervisor to the goal. Raises Refused: what it waited for, or what went wrong."""
    heard: queue.Queue[Any] = queue.Queue()
    ends = time.monotonic() + TIME_LIMIT
    with events.watch(crew.paths) as watch, DemoCrew(crew, env, heard) as players:
        watch.subscribe(heard)
        for agent in FIRST_AGENTS:
            players.start(agent)
        _print_line("", f"started {', '.join(FIRST_AGENTS)}")
        scene = DemoProgress(crew, players, crew.board.read())
        while not scene.update():
            _wait_for_event(heard, ends, scene)


def _wait_for_event(heard: queue.Queue[Any], ends: float, scene: DemoProgress) -> None:
    """Wait until something happened; a supervisor that left will not bring the goal."""
    try:
        news = [heard.get(timeout=max(0.0, ends - time.monotonic()))]
    except queue.Empty:
        raise Refused(
            f"after {TIME_LIMIT:.0f} s it still waited for {scene.describe_unfinished()}", _log_hint(scene.crew)
        ) from None
    while not heard.empty():
        news.append(heard.get())
    for gone in (one for one in news if isinstance(one, SupervisorEnded)):
        last = scene.supervisors.log_path(gone.agent).read_text(errors="replace").strip().splitlines()
        said = last[-1] if last else "it said nothing"
        raise Refused(f"the supervisor of {gone.agent} ended with {gone.code}: {said}", _log_hint(scene.crew))


@dataclass
class DemoProgress:
    """What was shown so far, and what the person in front of it has to do."""

    crew: Crew
    supervisors: DemoCrew
    last_state: State

    def update(self) -> bool:
        """Tell what is new and do what is a person's; whether the goal is reached. Raises Refused."""
        before, state = self.last_state, self.crew.board.read()
        self.last_state = state
        for one in find_news(before, state):
            _print_line("you" if one.who.startswith("human:") else LIZA if one.liza else one.who, one.text)
        self._answer_questions(state)
        self._start_reviewer(state)
        return state.goal.status == "COMPLETED"

    def _answer_questions(self, state: State) -> None:
        for task in state.tasks:
            if task.status is not Status.BLOCKED:
                continue
            if task.failed_by or task.answers or task.id not in ANSWERS:
                raise Refused(f"{task.id} is blocked: {task.blocked_reason}", f"liza task show {task.id}")
            words = ["task", "unblock", task.id, "--answer", ANSWERS[task.id]]
            _print_line("you", f"type: liza {shlex.join(words)}")
            done = demo_crew.run_liza(words, self.crew.paths.root, self.supervisors.env)
            if done.returncode != 0:
                raise Refused(f"liza {shlex.join(words)}: {done.stderr.strip()}", f"liza task show {task.id}")

    def _start_reviewer(self, state: State) -> None:
        """Nothing is merged before there is a reviewer: so both rivals begin at the same commit, and must conflict."""
        begun = [task for name in CONFLICTING_TASKS if (task := state.task(name)) and task.base_commit]
        if len(begun) == len(CONFLICTING_TASKS) and REVIEWER not in self.supervisors.started_agents():
            self.supervisors.start(REVIEWER)
            _print_line(
                "", f"started {REVIEWER}: {' and '.join(CONFLICTING_TASKS)} change the same lines, and both are begun"
            )

    def describe_unfinished(self) -> str:
        """Each task that is not merged, and where it stands; else the goal."""
        state = self.crew.board.read()
        tasks = [task for task in state.tasks if task.status is not Status.MERGED]
        named = [f"{task.id} ({task.status}, {task.assigned_to or 'nobody'})" for task in tasks]
        return ", ".join(named) or ("the planner's last word" if state.tasks else "the planner's tasks")


def _report_end(crew: Crew, env: Mapping[str, str], seconds: float) -> int:
    """The board, what was merged, where to look; 0 when all is as it has to be."""
    root = crew.paths.root
    state = crew.board.read()
    board = demo_crew.run_liza(["status"], root, env)
    printing.print_now(f"\n{board.stdout}{board.stderr}")
    git, branch = Git(root), state.config.integration_branch
    merged = git.out("log", "--first-parent", "--format=  %h %s", branch)
    printing.print_now(f"\nMerged (git log --first-parent {branch}):\n{merged}\n")
    found = checks.find_failures(crew, env)
    if found:
        raise Refused("; ".join(found), _log_hint(crew))
    printing.print_now(
        f"{len(state.tasks)} tasks merged in {seconds:.1f} s and {state.revision} revisions of the board; "
        f"`liza validate` and the tests on {branch} pass. Nothing is left running.\n"
    )
    _print_hints(root)
    return 0


def _print_hints(root: Path) -> None:
    liza = "liza" if shutil.which("liza") else shlex.quote(str(liza_path()))
    rows = [
        [f"  {liza} history invoice-model -p", "how a rejection was mended, a commit a step"],
        [f"  {liza} task show invoice-mail", "a question, its answer, and what came of it"],
        ["  git diff main...integration", "what the crew has made; your own branch is as it was"],
    ]
    printing.print_now(f"Look around:  cd {shlex.quote(str(root))}\n{columns.align_columns(rows)}")


def _log_hint(crew: Crew) -> str:
    return f"cd {shlex.quote(str(crew.paths.root))} && liza status; the supervisors' words are in .liza/logs/"


def _print_line(who: str, what: str) -> None:
    printing.print_row(
        f"  {columns.paint(f'{who:<16}', _COLOURS.get(who, 'cyan'), printing.wants_colours())}",
        columns.strip_controls(what),
    )
