"""One crew: the board, the repository, the programs and the clock that verbs bring together."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from liza.board.store import Board, Transaction
from liza.crew import run_state
from liza.crew.drift import confirmed_settings
from liza.programs.session import log_file
from liza.programs.session.run_directory import RunDir
from liza.repo.slots import slots_directory
from liza.rules import settings
from liza.rules.derived import update_derived_fields
from liza.rules.errors import BoardInconsistent, LizaError, Missing, NoCrew, Refused
from liza.rules.model import Clock, State, Status, Task
from liza.rules.paths import HISTORY_REF, Paths, agent_of
from liza.rules.project import slots_location
from liza.rules.redaction import redact, redact_changes
from liza.rules.tasks.picking import Evidence
from liza.system import program_path
from liza.system.file_lock import Lock

if TYPE_CHECKING:
    from liza.repo.runner import Git
    from liza.repo.slots.pool import Worktrees


PERSON_PREFIX = "human:"
"""How the name of a person begins, where it stands for who said something."""


class SystemClock:
    """The machine's clock: UTC in whole seconds, and seconds that stand still while the machine sleeps."""

    def now(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass(frozen=True)
class Crew:
    """What every verb is given. Opening one reads nothing."""

    paths: Paths
    clock: Clock
    lock_descriptors: tuple[int, ...] = ()
    moved_reason: str | None = None
    """Why the slots cannot be used: the repository was moved, and a supervisor still works at the former path."""

    def with_lock(self, lock: Lock) -> Crew:
        """This crew with gits that go on holding a lock of ours: it is free once the last of them is gone."""
        return replace(self, lock_descriptors=(*self.lock_descriptors, lock.descriptor))

    @cached_property
    def board(self) -> Board:
        return Board(self.paths, self.clock, lambda state: confirmed_settings.with_trusted_settings(self.paths, state))

    @cached_property
    def git(self) -> Git:
        """git at the root of the person's checkout, with what may be executed pinned."""
        from liza.repo.config_pins import Pins
        from liza.repo.runner import Git

        # A crew has pins from before its board is there: gone afterwards, nothing may run until that is mended.
        wanted = self.paths.pins.exists() or self.paths.state.exists()
        try:
            git = Git(
                self.paths.root, Pins.load(self.paths.pins) if wanted else None, inherited_fds=self.lock_descriptors
            )
        except Missing as gone:
            from liza.crew.layout import mending

            raise Missing(gone.message, mending(self)) from gone
        place = self.paths.root / ".git"
        # A file there leads to where git keeps its things; it can only be believed.
        return git if place.is_file() else git.with_git_dir(self.paths.root, place, place)

    @cached_property
    def worktrees(self) -> Worktrees:
        from liza.repo.slots.pool import Worktrees

        if self.moved_reason is not None:
            raise Refused(self.moved_reason, "liza down")
        return Worktrees(self.paths, self.git, self.board.read().config.integration_branch)

    @contextmanager
    def change(self, actor: str, event: str, task: str | None = None) -> Iterator[Transaction]:
        """A transaction whose fields for readers are rewritten with whatever the verb changed.

        What an agent, or a program, says goes onto the board without secrets; what a person says is theirs.
        """
        with self.board.transaction(actor, event, task=task) as tx:
            yield tx
            if tx.state is not tx.before:
                changed = tx.state if actor.startswith(PERSON_PREFIX) else redact_changes(tx.before, tx.state)
                tx.state = update_derived_fields(changed)
        if actor.startswith(PERSON_PREFIX):
            confirmed_settings.confirm_settings(
                self.paths, settings.changed_settings(tx.before.config, tx.state.config), tx.before.config
            )
        self.log_board_alerts()

    def log_board_alerts(self) -> tuple[str, ...]:
        """Write down what was settled on the board and a person must know, for nobody else hears of it."""
        told = tuple(f"{alert.kind}  {alert.message}" for alert in self.board.take_alerts())
        if told:
            self.append_alert_log(told)
        return told

    def append_alert_log(self, lines: Iterable[str]) -> None:
        """Append lines to `.liza/alerts.log`, each with its time."""
        stamp = f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        with log_file.open_for_append(self.paths.alerts) as log:
            log.writelines(f"{stamp}  {redact(line)}\n" for line in lines)

    def run_dir(self, run: str) -> RunDir:
        return RunDir(self.paths, run)

    def worktree_path(self, task: Task) -> Path:
        """The worktree of a task. Raises NoCrew where it has none."""
        if task.worktree is None:
            raise NoCrew(f"{task.id} has no worktree", f"liza task show {task.id}")
        return self.paths.slot(task.worktree)

    def find_integration_checkout(self) -> Path | None:
        """Where somebody has integration checked out; None where nobody has."""
        from liza.repo.merge.merges import list_checkouts

        branch = self.board.read().config.integration_branch
        return next((place for place, found in list_checkouts(self.git).items() if found == branch), None)

    def is_supervised(self, agent: str) -> bool:
        """Whether a supervisor of ``agent`` lives: its lock is held."""
        path = self.paths.supervisor_lock(agent)
        if not path.exists():
            return False
        lock = Lock(path)
        if lock.try_acquire():
            lock.release()
            return False
        return True

    def gather_evidence(self, state: State) -> Evidence:
        """What `choose` cannot read off the board: who is offline, and which sessions are proved over."""
        asked = [task for task in state.tasks if task.status in _OWNED_STATUSES and task.run]
        owners = {task.assigned_to for task in asked if task.assigned_to}
        return Evidence(
            offline=frozenset(agent for agent in owners if not self.is_supervised(agent)),
            dead=frozenset(task.run for task in asked if task.run and self._is_over(task.run)),
            abandoned=frozenset(self._abandoned_runs(state)),
        )

    def _abandoned_runs(self, state: State) -> Iterator[str]:
        """Reviews and planning whose lease lapsed, whose supervisor is gone and whose session is over."""
        reviews = [(task.review_run, task.review_lease_expires) for task in state.tasks]
        held = [*reviews, (state.planning.run, state.planning.lease_expires)]
        for run, expires in held:
            if run is None or expires is None or expires > self.clock.now() or self.is_supervised(agent_of(run)):
                continue
            if self._is_over(run):
                yield run

    def _is_over(self, run: str) -> bool:
        """Whether a session is proved over. A file of it that cannot be read proves nothing, and is its own agent's
        trouble: all others go on."""
        try:
            return run_state.is_session_over(self.run_dir(run))
        except LizaError:
            return False


_OWNED_STATUSES = frozenset({Status.CLAIMED, Status.READY_FOR_REVIEW, Status.REJECTED, Status.INTEGRATION_FAILED})


def find_crew(start: Path | None = None, clock: Clock | None = None) -> Crew:
    """The crew of the directory, or of LIZA_ROOT in a session. Raises NoCrew."""
    found = find_crew_or_none(start, clock)
    # A seal without a board: where processes of that crew live, one command ends them and brings it back.
    if found is None or (not found.paths.state.exists() and _survivor_names(found)):
        raise no_crew_error((start or _current_directory()).absolute(), clock)
    return found


def find_crew_or_none(start: Path | None = None, clock: Clock | None = None) -> Crew | None:
    """As ``find_crew``; None where there is none, without asking git what is left of one. Raises Refused."""
    named = os.environ.get("LIZA_ROOT")
    if named:
        return open_crew(Path(named), clock)
    root = next((root for here in _search_starts(start) if (root := _find_root(here)) is not None), None)
    return None if root is None else open_crew(root, clock)


def _search_starts(start: Path | None) -> Iterator[Path]:
    """Where to look for a crew: the directory, and its name as the shell has it, which a link may lead through: after
    a move the repository is found above `.worktrees/<task>`, and not yet from the slot that the link leads to."""
    here = (start or _current_directory()).absolute()
    yield here
    logical = Path(os.environ.get("PWD", ""))
    with suppress(OSError):
        if start is None and logical.is_absolute() and logical.samefile(here):
            yield logical


def _find_root(here: Path) -> Path | None:
    """The repository of the nearest crew: above the directory, or named by the mark above a slot."""
    for directory in (here, *here.parents):
        if _has_board(directory):
            return directory
        root = slots_directory.find_root(directory)
        if root is not None and _has_board(root):
            return root
    return None


def _has_board(root: Path) -> bool:
    return (root / ".liza" / "state.yaml").exists() or (root / ".liza" / "tx" / "seal").exists()


def find_lost_crew(start: Path | None = None, clock: Clock | None = None) -> Crew | None:
    """The crew of the repository here that has neither board nor seal any more, where an earlier board is kept.

    Raises Refused, GitFailed.
    """
    crew = _crew_of_repository(start or _current_directory(), clock)
    return crew if crew is not None and find_earlier_board(crew) else None


def find_earlier_board(crew: Crew) -> str | None:
    """Where an earlier board of a crew that has none can be had from, in words; None for nowhere. Raises GitFailed."""
    if crew.paths.tx.is_dir():
        with suppress(BoardInconsistent):
            crew.board.last_good_text()
            return ".liza/tx"
    return HISTORY_REF if crew.git.ok("show-ref", "--verify", "--quiet", HISTORY_REF) else None


def no_crew_error(here: Path, clock: Clock | None = None) -> NoCrew:
    """Why there is no crew in a directory, and what can be done: begin one, or bring back what is kept of one."""
    told, hint = f"there is no .liza in {here} or above it", 'liza init "what you want to have"'
    if not _in_git(here):
        return NoCrew(f"{here} is in no git repository", 'git init, then: liza init "what you want to have"')
    crew: Crew | None = None
    kept = None
    # Where even that cannot be asked, there is no crew all the same.
    with suppress(LizaError, OSError):
        crew = _crew_of_repository(here, clock)
        if crew is not None and crew.paths.liza.exists():
            place = crew.paths.liza
            told, hint = f"{place} is there and holds no board", shlex.join(["mv", str(place), f"{place}.old"])
        kept = None if crew is None else find_earlier_board(crew)
    if kept is None:
        return NoCrew(told, hint)
    told += f"; the board of a crew that was here is kept in {kept}. To begin anew: {hint}"
    alive = _survivor_names(crew)
    if alive:
        told += f". Still at work: {', '.join(alive)}"
    return NoCrew(told, "liza restore --last-good --stop" if alive else "liza restore --last-good")


def _in_git(here: Path) -> bool:
    """Whether a directory lies in a repository, or in the work tree of one."""
    return any((directory / ".git").exists() for directory in (here, *here.parents))


def _survivor_names(crew: Crew | None) -> list[str]:
    """What still works for a crew whose .liza is gone."""
    from liza.crew.layout import find_survivors

    return sorted(set(find_survivors(crew).values())) if crew is not None else []


def _crew_of_repository(here: Path, clock: Clock | None) -> Crew | None:
    """The crew that the repository of a directory has, had, or could have. Raises Refused."""
    here = here.absolute()
    for directory in (here, *here.parents):
        # In a linked work tree, and so in a slot, .git is a file.
        if (directory / ".git").is_dir():
            return open_crew(directory, clock)
        root = slots_directory.find_root(directory)
        if root is not None and (root / ".git").exists():
            return open_crew(root, clock)
    return None


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise NoCrew("the directory that this was said in is not there any more", 'cd "$PWD"') from None


def open_crew(root: Path, clock: Clock | None = None) -> Crew:
    """The crew of the repository at ``root``. Raises Refused, LizaError."""
    # By its one real name: sessions are known by the root that they were given.
    paths = Paths(root.resolve())
    slots_location.refuse_line_break(paths.root)
    for place in (paths.liza, paths.tx, paths.spool, paths.locks, paths.logs, paths.runs, paths.worktrees):
        if place.is_symlink():
            raise Refused(f"{place} is a link; a crew keeps its things in the repository itself", f"ls -l {place}")
    placed = slots_directory.read_record(paths)
    if placed is not None and placed.root == paths.root:
        current, why = replace(paths, chosen_slots=placed.directory), None
    else:
        from liza.crew.recovery import moved_repository

        current, why = moved_repository.repair_location(paths, placed)
    program_path.remove_unsafe_entries(paths.worktrees, current.slots)
    return Crew(current, clock or SystemClock(), moved_reason=why)
