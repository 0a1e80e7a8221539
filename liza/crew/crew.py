"""One crew: its board, repository, programs and clock, as every verb gets them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from liza.board.address import read_address
from liza.board.contract import Board, Transaction
from liza.board.opening import open_board
from liza.board.presence import has_board, has_board_or_intent
from liza.board.text.document import RESTORE_COMMAND
from liza.box import support
from liza.box.run_mounts import Surroundings
from liza.box.surroundings import read_surroundings
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew import deleted_parts, shared_pages
from liza.git import slot_records, slots_directory
from liza.git.git_config import git_dirs
from liza.git.merge_term import HeldTerm, MergeTerm
from liza.git.runner import Git
from liza.git.survey import begin_command, survey
from liza.git.worktrees import Worktrees
from liza.model.configuration import Confinement
from liza.model.derived import restart_planning_rounds, update_derived_fields
from liza.model.errors import BoardInconsistent, LizaError, Missing, NoCrew, NotRegularFile, Refused
from liza.model.model import Clock, Task
from liza.model.paths import HISTORY_REF, Paths, host_of_slot, is_person, split_run
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.session import log_file
from liza.programs.session.run_directory import RunDir
from liza.system import program_path
from liza.system.clock import SystemClock
from liza.system.locks import Lock
from liza.text.formats import format_time
from liza.text.redaction import redact, redact_changes
from liza.text.undecoded import escape_undecoded

_GOAL: Final = "what you want to have"


class Crew(Value, dict=True):
    """The argument of every verb. Constructing one reads nothing."""

    paths: Paths
    clock: Clock
    lock_descriptors: tuple[int, ...] = ()
    moved_reason: str | None = None
    """Set if the slots cannot be used: the repository was moved and a supervisor still runs at the former path."""
    host: str = ""
    """The name of this host in the crew; empty for a crew on one host, and in a clone that runs no agents."""
    remote_name: str = ""
    """The git remote through which the hosts of a crew share code; empty for a crew on one host."""
    merge_term: MergeTerm | None = None
    """The duty to merge of this host; None: the board says who has it."""
    held_term: HeldTerm | None = None
    """Set while a merger of a crew on several hosts works."""
    authenticated_run: str | None = None
    """The run that calls the verbs, proved by its token. None: the environment and the ancestors tell who calls."""

    def with_caller(self, run: str) -> Crew:
        """Return this crew, with the same open board, for verbs that are called by a run with its token."""
        crew = replace(self, authenticated_run=run)
        vars(crew)["board"] = self.board
        return crew

    def with_lock(self, lock: Lock) -> Crew:
        """Return this crew with git processes that inherit ``lock``: it is released when the last of them exits."""
        locked = replace(self, lock_descriptors=(*self.lock_descriptors, lock.descriptor))
        # Another Board would read the whole board again: this one knows most of its entries.
        locked.__dict__["board"] = self.board
        return locked

    @property
    def is_on_server(self) -> bool:
        """Whether the board is on a server: other clones and hosts may have the same crew."""
        return self.paths.board_address.exists()

    def with_term(self, held: HeldTerm) -> Crew:
        """Return this crew, with the same open board, for a merger with a term."""
        crew = replace(self, held_term=held)
        vars(crew)["board"] = self.board
        return crew

    @cached_property
    def board(self) -> Board:
        return open_board(
            self.paths, self.clock, lambda state: confirmed_settings.with_trusted_settings(self.paths, state)
        )

    @cached_property
    def git(self) -> Git:
        """git at the root of the person's checkout."""
        # init writes the pins before the board. A board without pins means that the pins were deleted, and with them
        # what a person has confirmed: no git command runs until they are restored.
        try:
            if self.paths.pins.exists() or has_board(self.paths):
                confirmed_settings.load_pins(self.paths.pins)
        except NotRegularFile:
            raise
        except Missing as error:
            raise Missing(error.message, deleted_parts.find_repair(self.paths, self.board.read)) from error
        git = Git(self.paths.root, inherited_fds=self.lock_descriptors)
        git_dir = self.paths.root / ".git"
        # If .git is a file, it names the git directory. Nothing can verify it, so git resolves it.
        return git if git_dir.is_file() else git.with_git_dir(self.paths.root, git_dir, git_dir)

    def slot_owner(self, slot: str) -> tuple[str, str] | None:
        """Return the task and run that own a slot, as ``worktrees`` does, without loading the code that changes slots.

        Raises Refused, GitFailed.
        """
        self.refuse_moved()
        return slot_records.slot_owner(self.paths.slot(slot), git_dirs(self.git)[1])

    def refuse_moved(self) -> None:
        """Raise Refused if the slots cannot be used: the repository was moved."""
        if self.moved_reason is not None:
            raise Refused(self.moved_reason, "liza down")

    @cached_property
    def worktrees(self) -> Worktrees:
        return self.worktrees_onto(self.board.read().config.integration_branch)

    def worktrees_onto(self, branch: str, confinement: Confinement | None = None) -> Worktrees:
        """Return the slots of the crew, for work that is merged into ``branch``. Raises Refused.

        ``confinement``: the setting, for a crew whose board is not written yet.
        """
        self.refuse_moved()
        return Worktrees(self.paths, self.git, branch, lambda: self._find_surroundings(confinement))

    def _find_surroundings(self, confinement: Confinement | None) -> Surroundings | None:
        """Return what boxes of this crew need; None where processes run without one. Raises Missing, OSError."""
        program = support.choose_box_program(confinement or self.board.read().config.confinement)
        return None if program is None else self._surroundings

    @cached_property
    def _surroundings(self) -> Surroundings:
        return read_surroundings(support.find_support().program, self.paths, os.environ)

    @contextmanager
    def change(self, actor: str, event: str, task: str | None = None) -> Iterator[Transaction]:
        """Open a transaction that updates the derived fields when it commits.

        Secrets are redacted in changes by agents and programs, not in changes by a person. Settings that a person
        changes count as confirmed. Whatever a person changes, planning rounds are counted anew.
        """
        with self.board.transaction(actor, event, task=task) as tx:
            yield tx
            if is_person(actor):
                tx.state = restart_planning_rounds(tx.state)
            if tx.state is not tx.before:
                changed = tx.state if is_person(actor) else redact_changes(tx.before, tx.state)
                tx.state = update_derived_fields(changed)
            if self.is_on_server and tx.state is not tx.before:
                shared_pages.share_pages(self.paths, self.board, tx.before, tx.state)
        if is_person(actor):
            confirmed_settings.confirm_settings(
                self.paths, settings.changed_settings(tx.before.config, tx.state.config), tx.before.config
            )
        self.log_board_alerts()

    def update_pages(self) -> None:
        """Bring the documents below `.liza/specs` up to date that hosts share; nothing for a board in files.

        Raises BoardUnavailable, WriteFailed, OSError.
        """
        if self.is_on_server and (lines := shared_pages.update_pages(self.paths, self.board)):
            self.append_alert_log(lines)

    def log_board_alerts(self) -> tuple[str, ...]:
        """Append the alerts about repairs of the board to the alert log, and return them: no other command reports
        them."""
        lines = tuple(f"{alert.kind}  {alert.message}" for alert in self.board.take_alerts())
        if lines:
            self.append_alert_log(lines)
        return lines

    def append_alert_log(self, lines: Iterable[str]) -> None:
        """Append lines to `.liza/alerts.log`, each with the current time. Secrets are redacted."""
        stamp = format_time(self.clock.now())
        with log_file.open_for_append(self.paths.alerts) as log:
            log.writelines(f"{stamp}  {escape_undecoded(redact(line))}\n" for line in lines)

    def run_dir(self, run: str) -> RunDir:
        return RunDir(self.paths, run)

    def worktree_path(self, task: Task) -> Path:
        """Path of a task's worktree. Raises NoCrew if it has none."""
        if task.worktree is None:
            raise NoCrew(f"{task.id} has no worktree", f"liza task show {task.id}")
        self.require_here(task)
        return self.paths.slot(task.worktree)

    def is_here(self, task: Task) -> bool:
        """Return whether the worktree of a task belongs to this host, or the task has none.

        A crew on one host has all of them, also those that had the name of a host before an export. A worktree without
        one is from before an import: only the host that imported the board has it.
        """
        if task.worktree is None or not self.host:
            return True
        host = host_of_slot(task.worktree)
        return host == self.host or (not host and self.paths.slot(task.worktree).is_dir())

    def require_here(self, task: Task) -> None:
        """Raise Refused if the worktree of a task belongs to another host."""
        if not self.is_here(task):
            host = host_of_slot(str(task.worktree)) or "that imported the board"
            message = f"the worktree of {task.id} is on the host {host}"
            raise Refused(message, "liza host list")

    def find_holder(self, agent: str) -> str:
        """Return the other host that holds an agent: its supervisor runs there. Empty if no other host does."""
        placement = self.board.held_agents().get(agent)
        return "" if placement is None or placement.host == self.host else placement.host

    def is_supervised_here(self, agent: str) -> bool:
        """Whether a supervisor of ``agent`` runs on this host: its lock is held."""
        return liveness.is_supervised(self.paths, agent)

    def is_supervised(self, agent: str) -> bool:
        """Whether a supervisor of ``agent`` runs, on this host or on another one."""
        return self.is_supervised_here(agent) or self.find_holder(agent) != ""

    def is_run_over(self, run: str) -> bool:
        """Whether the session of a run is proved over: here by its processes, elsewhere as the host that has its agent
        says."""
        agent, _ = split_run(run)
        placement = self.board.held_agents().get(agent)
        if placement is not None and placement.host != self.host:
            return placement.run != run
        return liveness.is_proved_over(self.run_dir(run))


def find_crew(start: Path | None = None, clock: Clock | None = None, goal: str = _GOAL) -> Crew:
    """Return the crew of the directory, or of LIZA_ROOT in a session. ``goal``: of the crew that may be begun.

    Raises NoCrew.
    """
    crew = find_crew_or_none(start, clock)
    # There is a write intent but no board. If processes of that crew run, the error names the one command that ends
    # them and restores the board.
    if crew is None or (not has_board(crew.paths) and _survivor_names(crew)):
        raise no_crew_error((start or _current_directory()).absolute(), clock, goal)
    return crew


def find_crew_or_none(start: Path | None = None, clock: Clock | None = None) -> Crew | None:
    """As ``find_crew``, but return None if there is no crew; git is not asked for its remains. Raises Refused."""
    root_variable = os.environ.get("LIZA_ROOT")
    if root_variable:
        return open_crew(Path(root_variable), clock)
    root = find_root((start or _current_directory()).absolute())
    return None if root is None else open_crew(root, clock)


def find_root(start: Path) -> Path | None:
    """Return the root of the nearest crew: a directory at or above ``start``, or that of a slot."""
    for directory in (start, *start.parents):
        paths = Paths(directory)
        if has_board_or_intent(paths) and ((directory / ".git").exists() or paths.pins.exists()):
            # Without either, .liza is of another program, and a repository below has nothing to do with it.
            return directory
        root = slots_directory.find_root(directory)
        if root is not None and has_board_or_intent(Paths(root)):
            return root
    return None


def find_lost_crew() -> Crew | None:
    """Return the crew of this repository whose board and write intent are gone, if an earlier board is kept.

    Raises Refused, GitFailed.
    """
    crew = _crew_of_repository(_current_directory(), None)
    return crew if crew is not None and find_earlier_board(crew) else None


def find_earlier_board(crew: Crew) -> str | None:
    """Name the source of an earlier board, for a crew without a board; None if there is no source. Raises GitFailed."""
    if crew.paths.tx.is_dir():
        with suppress(BoardInconsistent):
            crew.board.last_good_text()
            return ".liza/tx"
    return HISTORY_REF if crew.git.ok("show-ref", "--verify", "--quiet", HISTORY_REF) else None


def no_crew_error(here: Path, clock: Clock | None = None, goal: str = _GOAL) -> NoCrew:
    """Return the error for a directory without a crew; its hint is to begin a crew or to restore the kept board."""
    message, hint = f"there is no .liza in {here} or above it", f'liza init "{goal}"'
    if not _in_git(here):
        return NoCrew(f"{here} is not in a git repository", f"{begin_command(Git(here))} && {hint}")
    crew: Crew | None = None
    source = None
    # If git fails, the answer is still that there is no crew.
    with suppress(LizaError, OSError):
        main = survey(here).main_checkout
        if main is not None and has_board(Paths(main)):
            step = shlex.join(["cd", str(main)])
            return NoCrew(f"{here} is in a linked worktree; the crew of the repository is in {main}", step)
        if main is not None:
            # `init` is refused in a linked worktree.
            message, hint = f"there is no .liza in {main}", f"{shlex.join(['cd', str(main)])} && {hint}"
        crew = _crew_of_repository(here, clock)
        if crew is not None and crew.paths.liza.exists() and not is_empty_directory(crew.paths.liza):
            directory = crew.paths.liza
            message, hint = f"{directory} exists but has no board", slots_directory.move_away_command(directory)
        source = None if crew is None else find_earlier_board(crew)
    if source is None:
        return NoCrew(message, hint)
    message += f"; the board of an earlier crew is kept in {source}. To begin anew: {hint}"
    survivors = _survivor_names(crew)
    if survivors:
        message += f". Still running: {', '.join(survivors)}"
    return NoCrew(message, f"{RESTORE_COMMAND} --stop" if survivors else RESTORE_COMMAND)


def is_empty_directory(path: Path) -> bool:
    """Whether a path is a directory without entries, such as a mount point after a purge. Raises OSError."""
    return path.is_dir() and not any(path.iterdir())


def with_stop(error: LizaError, crew: Crew | None = None) -> LizaError:
    """Add ``--stop`` to the hint of an error, if it is a restore and processes of the deleted .liza still run."""
    if error.hint == RESTORE_COMMAND:
        with suppress(LizaError, OSError):
            if _survivor_names(crew or find_crew_or_none() or _crew_of_repository(_current_directory(), None)):
                error.hint = f"{RESTORE_COMMAND} --stop"
    return error


def _in_git(here: Path) -> bool:
    """Whether a directory is in a repository or in its worktree."""
    return any((directory / ".git").exists() for directory in (here, *here.parents))


def _survivor_names(crew: Crew | None) -> list[str]:
    """Names of the processes that still work for a crew whose .liza is gone."""
    return sorted(set(deleted_parts.find_survivors(crew.paths).values())) if crew is not None else []


def _crew_of_repository(here: Path, clock: Clock | None) -> Crew | None:
    """Open the crew of the repository of a directory, whether or not the crew exists. Raises Refused."""
    here = here.absolute()
    for directory in (here, *here.parents):
        # In a linked worktree, and so in a slot, .git is a file.
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
        raise NoCrew("the current directory does not exist any more", 'cd "$PWD"') from None


def open_crew(root: Path, clock: Clock | None = None) -> Crew:
    """Open the crew of the repository at ``root``. Raises Refused, LizaError."""
    # Resolve links: processes of a session are found by the root path in their environment.
    paths = Paths(root.resolve())
    slots_directory.refuse_line_break(paths.root)
    for path in (paths.liza, paths.tx, paths.locks, paths.logs, paths.runs):
        if path.is_symlink():
            raise Refused(f"{path} is a link; it must be a directory in the repository", f"ls -l {path}")
    record = slots_directory.read_record(paths)
    if record is not None and record.root == paths.root:
        current, moved_reason = replace(paths, chosen_slots=record.directory), None
    else:
        current, moved_reason = deleted_parts.repair_location(paths, record)
    program_path.remove_unsafe_entries(current.slots)
    address = read_address(paths.board_address)
    host, remote = ("", "") if address is None else (address.host, address.remote)
    crew = Crew(current, clock or SystemClock(), moved_reason=moved_reason, host=host, remote_name=remote)
    if address is None or clock is not None:
        return crew
    timed = replace(crew, clock=crew.board.clock(crew.clock))
    vars(timed)["board"] = crew.board
    return timed
