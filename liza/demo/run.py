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
from liza.cli.render import columns, tell
from liza.crew.caller import person
from liza.crew.crew import Crew, crew_at
from liza.crew.liza_path import liza_path
from liza.demo import cast, checks, shop_project
from liza.demo.cast import Cast, SupervisorEnded
from liza.repo.runner import Git
from liza.rules.errors import Refused
from liza.rules.model import State, Status
from liza.rules.reports.narration import LIZA, news

BOUND = 120.0
"""Seconds after which the demo says what it still waits for, and ends."""
FIRST = ("planner-1", "coder-1", "coder-2")
REVIEWER = "code-reviewer-1"
RIVALS = ("price-currency", "price-discount")
"""Two tasks that change the same lines."""
ANSWERS = {"invoice-mail": "billing@shop.example"}
_COLOURS = {"you": "bold", "project": "plain"}


def demo(directory: Path | None) -> int:
    """Show it; 0 when every task is merged, the board is valid and the merged code's tests pass, else 1.

    Raises Usage for a directory that is not empty, Missing without git.
    """
    began = time.monotonic()
    root = shop_project.place(directory)
    env = cast.environment()
    _line("project", f"a small shop in {root}")
    shop_project.make(root)
    _init(root, env)
    crew = crew_at(root)
    _be_quick(crew)
    with _interrupted_by_signals():
        try:
            _play(crew, env)
        except KeyboardInterrupt:
            _line("", f"all stopped; the work is in {root}/.worktrees and on task/*")
            raise
    return _end(crew, env, time.monotonic() - began)


def _init(root: Path, env: Mapping[str, str]) -> None:
    words = ["init", shop_project.GOAL, "--spec", shop_project.SPEC, "--program", cast.program("coder-1")]
    done = cast.say(words, root, env)
    if done.returncode != 0:
        raise Refused(f"liza init said {done.returncode}: {done.stderr.strip()}", "liza doctor")
    tell.live(done.stdout)


def _be_quick(crew: Crew) -> None:
    """Real programs deserve a rest after a crash; nobody should watch one here."""
    with crew.change(person(), "settings") as tx:
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


def _play(crew: Crew, env: Mapping[str, str]) -> None:
    """From the first supervisor to the goal. Raises Refused: what it waited for, or what went wrong."""
    heard: queue.Queue[Any] = queue.Queue()
    ends = time.monotonic() + BOUND
    with events.watch(crew.paths) as watch, Cast(crew, env, heard) as players:
        watch.put_into(heard)
        for agent in FIRST:
            players.start(agent)
        _line("", f"started {', '.join(FIRST)}")
        scene = Scene(crew, players, crew.board.read())
        while not scene.look():
            _hear(heard, ends, scene)


def _hear(heard: queue.Queue[Any], ends: float, scene: Scene) -> None:
    """Wait until something happened; a supervisor that left will not bring the goal."""
    try:
        news = [heard.get(timeout=max(0.0, ends - time.monotonic()))]
    except queue.Empty:
        raise Refused(f"after {BOUND:.0f} s it still waited for {scene.waits_for()}", _logs(scene.crew)) from None
    while not heard.empty():
        news.append(heard.get())
    for gone in (one for one in news if isinstance(one, SupervisorEnded)):
        last = scene.players.log(gone.agent).read_text(errors="replace").strip().splitlines()
        said = last[-1] if last else "it said nothing"
        raise Refused(f"the supervisor of {gone.agent} ended with {gone.code}: {said}", _logs(scene.crew))


@dataclass
class Scene:
    """What was shown so far, and what the person in front of it has to do."""

    crew: Crew
    players: Cast
    seen: State

    def look(self) -> bool:
        """Tell what is new and do what is a person's; whether the goal is reached. Raises Refused."""
        before, state = self.seen, self.crew.board.read()
        self.seen = state
        for one in news(before, state):
            _line("you" if one.who.startswith("human:") else LIZA if one.liza else one.who, one.text)
        self._answer(state)
        self._call_reviewer(state)
        return state.goal.status == "COMPLETED"

    def _answer(self, state: State) -> None:
        for task in state.tasks:
            if task.status is not Status.BLOCKED:
                continue
            if task.failed_by or task.answers or task.id not in ANSWERS:
                raise Refused(f"{task.id} is blocked: {task.blocked_reason}", f"liza task show {task.id}")
            words = ["task", "unblock", task.id, "--answer", ANSWERS[task.id]]
            _line("you", f"type: liza {shlex.join(words)}")
            done = cast.say(words, self.crew.paths.root, self.players.env)
            if done.returncode != 0:
                raise Refused(f"liza {shlex.join(words)}: {done.stderr.strip()}", f"liza task show {task.id}")

    def _call_reviewer(self, state: State) -> None:
        """Nothing is merged before there is a reviewer: so both rivals begin at the same commit, and must conflict."""
        begun = [task for name in RIVALS if (task := state.task(name)) and task.base_commit]
        if len(begun) == len(RIVALS) and REVIEWER not in self.players.agents():
            self.players.start(REVIEWER)
            _line("", f"started {REVIEWER}: {' and '.join(RIVALS)} change the same lines, and both are begun")

    def waits_for(self) -> str:
        """Each task that is not merged, and where it stands; else the goal."""
        state = self.crew.board.read()
        tasks = [task for task in state.tasks if task.status is not Status.MERGED]
        named = [f"{task.id} ({task.status}, {task.assigned_to or 'nobody'})" for task in tasks]
        return ", ".join(named) or ("the planner's last word" if state.tasks else "the planner's tasks")


def _end(crew: Crew, env: Mapping[str, str], seconds: float) -> int:
    """The board, what was merged, where to look; 0 when all is as it has to be."""
    root = crew.paths.root
    state = crew.board.read()
    board = cast.say(["status"], root, env)
    tell.live(f"\n{board.stdout}{board.stderr}")
    git, branch = Git(root), state.config.integration_branch
    merged = git.out("log", "--first-parent", "--format=  %h %s", branch)
    tell.live(f"\nMerged (git log --first-parent {branch}):\n{merged}\n")
    found = checks.wrong(crew, env)
    if found:
        raise Refused("; ".join(found), _logs(crew))
    tell.live(
        f"{len(state.tasks)} tasks merged in {seconds:.1f} s and {state.revision} revisions of the board; "
        f"`liza validate` and the tests on {branch} pass. Nothing is left running.\n"
    )
    _where_to_look(root)
    return 0


def _where_to_look(root: Path) -> None:
    liza = "liza" if shutil.which("liza") else shlex.quote(str(liza_path()))
    rows = [
        [f"  {liza} history invoice-model -p", "how a rejection was mended, a commit a step"],
        [f"  {liza} task show invoice-mail", "a question, its answer, and what came of it"],
        ["  git diff main...integration", "what the crew has made; your own branch is as it was"],
    ]
    tell.live(f"Look around:  cd {shlex.quote(str(root))}\n{columns.table(rows)}")


def _logs(crew: Crew) -> str:
    return f"cd {shlex.quote(str(crew.paths.root))} && liza status; the supervisors' words are in .liza/logs/"


def _line(who: str, what: str) -> None:
    tell.row(f"  {columns.paint(f'{who:<16}', _COLOURS.get(who, 'cyan'), tell.colours())}", columns.harmless(what))
