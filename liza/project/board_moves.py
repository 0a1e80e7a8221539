"""board migrate, import, export: prepare a database, and move the board of a crew into it and back into files."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from liza.board import crew_moves
from liza.board.address import BoardAddress, parse_url, read_address, write_address
from liza.board.crew_copy import CrewCopy
from liza.board.revisions import RevisionLine, sha
from liza.board.signals import SIGNALS
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew import shared_pages
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recorder import record_history
from liza.crew.result import Result
from liza.git import integration_tip
from liza.git.root_commits import read_root_commits
from liza.model import invariants
from liza.model.errors import BoardInconsistent, NoCrew, Refused
from liza.model.model import FINAL_STATUSES, State
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.programs import liveness
from liza.programs.session import run_directory
from liza.project import shared_board
from liza.project.join import join_command
from liza.project.new_server_crew import push_integration
from liza.system import files
from liza.system.locks import Lock
from liza.tasks import archive, shared_code
from liza.tasks.rules import strangers
from liza.text.formats import count_noun, format_time

BEFORE_SERVER, BEFORE_EXPORT = ".before-server", ".before-export"
"""Suffixes of files that a move leaves beside the new board."""
_PAUSE = 'liza pause "the board moves"'


def migrate(crew: Crew | None, url: str) -> Result:
    """Bring the tables of a database to the schema of this Liza, with the role of ``url``. ``crew``: that of the
    working directory, if there is one.

    Raises UsageError, Refused inside a session, BoardServerRefused, LockTimeout.
    """
    if crew is not None:
        require_person(crew, planner=False)
    address = parse_url(url)
    migrated = crew_moves.migrate(address)
    details = {"applied": list(migrated.applied), "granted": migrated.is_granted}
    count = count_noun(len(migrated.applied), "migration")
    message = f"{count} applied: the database has the tables" if migrated.applied else "the tables are there already"
    if not migrated.is_granted:
        message += "; this role may not create the role liza_hosts: the role of each host needs rights on the tables"
    return Result("changed" if migrated.applied else "unchanged", None, None, _init_command(address), details, message)


def _init_command(address: BoardAddress) -> str:
    """Return the command that creates a crew, with the role of a host instead of the one that owns the tables."""
    return f'liza init "what you want to have" --board {shlex.quote(address.url_of_role("ROLE_OF_THIS_HOST"))}'


def import_board(crew: Crew, url: str, host: str | None = None) -> Result:
    """Move the board from the files of this clone into PostgreSQL. Nothing is written if it is refused.

    Raises Refused if a process of the crew works, if the crew is not paused, if a rule is broken, or if the database
    has a crew of this name; UsageError, BoardInconsistent, BoardServerRefused, BoardUnavailable, LockTimeout.
    """
    by = require_person(crew, planner=False)
    address = shared_board.choose_address(crew.git, url, host)
    present = read_address(crew.paths.board_address)
    if present is not None:
        raise Refused(f"the board is at {present.server} already, as the crew {present.crew}", "liza status")
    state = crew.board.read_as_written()
    _refuse_violations(crew, state)
    _refuse_unconfirmed(crew, state)
    _refuse_at_work(crew, state)
    roots = read_root_commits(crew.git)
    record_history(crew)
    _push_code(replace(crew, remote_name=address.remote), state)
    with Lock(crew.paths.state_lock):
        copy = _read_files(crew, by)
        crew_moves.import_crew(address, copy, roots)
        write_address(crew.paths.board_address, address)
        _rename_files(crew.paths)
    message = (
        f"the board is at {address.server} now, as the crew {address.crew}: {copy.describe()}, compared and the same\n"
        f"its file is kept as .liza/{crew.paths.state.name}{BEFORE_SERVER}; "
        f"in another clone: {join_command(address)}"
    )
    details = {"crew": address.crew, "host": address.host, "revision": state.revision}
    return Result("changed", None, None, "liza resume", details, message)


def _push_code(crew: Crew, state: State) -> None:
    """Push what other hosts need: the branch of the merges, and the submitted commits of open tasks.

    Raises Refused, Missing, RemoteUnavailable, GitFailed.
    """
    remote = shared_code.find_remote(crew)
    assert remote is not None
    push_integration(remote, state.config.integration_branch, integration_tip.require_integration(crew.git, state))
    for task in state.tasks:
        is_open = task.status not in FINAL_STATUSES and not strangers.is_foreign(task)
        if task.review_commit is not None and is_open:
            shared_code.push_submitted(crew, task, task.review_commit)


def _read_files(crew: Crew, by: str) -> CrewCopy:
    """Return the files, read under the lock. Raises BoardInconsistent."""
    copy = crew_moves.read_files(crew.paths, dict(shared_pages.list_pages(crew.paths)))
    if copy.lines:
        return copy
    # Without a journal the history would have no text that later revisions are built on.
    state = crew.board.read_as_written()
    time, digest = format_time(crew.clock.now()), sha(copy.text.encode())
    line = RevisionLine(state.revision, time=time, actor=by, event="board import", sha256=digest, text=copy.text)
    return replace(copy, lines=(line,))


def _refuse_violations(crew: Crew, state: State) -> None:
    broken = [str(violation) for violation in invariants.check_board(state)]
    broken += [f"{fault.entry}: {fault.actual}" for fault in archive.find_faults(crew.board, state)]
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise BoardInconsistent(
            f"a rule of the board is broken: {broken[0]}{more}; nothing was written", "liza validate"
        )


def _refuse_unconfirmed(crew: Crew, state: State) -> None:
    """Raise Refused for a setting that no person has confirmed: in the database it would count."""
    unconfirmed = confirmed_settings.find_unconfirmed(crew.paths, state)
    if unconfirmed:
        raise Refused(unconfirmed[0].description, f"{settings.ACCEPT_COMMAND} {unconfirmed[0].key}")


def _refuse_at_work(crew: Crew, state: State) -> None:
    """Raise Refused unless the crew is paused and none of its processes runs here."""
    supervised = [name for name in state.agents if crew.is_supervised(name)]
    if supervised:
        raise Refused(f"supervisors run: {', '.join(supervised)}", "liza down")
    living = _find_living_runs(crew)
    if living:
        raise Refused(f"sessions run: {', '.join(living)}", "liza down --now")
    if "PAUSE" not in crew.board.signals():
        raise Refused("the crew is not paused: an agent could start while the board moves", _PAUSE)


def _find_living_runs(crew: Crew) -> list[str]:
    agents = (
        sorted(path.name for path in crew.paths.runs.iterdir() if path.is_dir()) if crew.paths.runs.is_dir() else []
    )
    runs = [run for agent in agents for run in run_directory.list_runs(crew.paths, agent)]
    return [run for run in runs if not liveness.is_proved_over(crew.run_dir(run))]


def _rename_files(paths: Paths) -> None:
    """Rename the files of the board, which the database has now. Raises OSError."""
    _rename(paths, BEFORE_SERVER, paths.state, paths.journal, paths.archive, *map(paths.signal, SIGNALS))
    paths.write_intent.unlink(missing_ok=True)
    files.fsync_directory(paths.liza)


def _rename(paths: Paths, suffix: str, *sources: Path) -> None:
    for source in sources:
        if os.path.lexists(source):
            source.rename(files.find_free_path(source.with_name(source.name + suffix)))


def export_board(crew: Crew, path: Path | None) -> Result:
    """Write a copy of the board into the new directory ``path``; without it, move the board back into this clone.

    Raises Refused, BoardServerRefused, BoardUnavailable, WriteFailed.
    """
    require_person(crew, planner=False)
    address = read_address(crew.paths.board_address)
    if address is None:
        raise Refused("the board is in the file .liza/state.yaml already", "liza status")
    return _move_back(crew, address) if path is None else _write_copy(address, path)


def _write_copy(address: BoardAddress, path: Path) -> Result:
    directory = path.absolute()
    if os.path.lexists(directory):
        raise Refused(f"{directory} exists already: the copy needs a new directory", "liza board export ../board-copy")
    copy = crew_moves.export_crew(address)
    crew_moves.write_files(Paths(directory), copy)
    message = f"{directory} has a copy of the crew {address.crew}: {copy.describe()}, compared and the same"
    command = shlex.join(["liza", "validate", str(path)])
    return Result("changed", None, None, command, {"path": str(directory), "crew": address.crew}, message)


def _move_back(crew: Crew, address: BoardAddress) -> Result:
    """Write the files of this clone, rename the crew in the database, then remove the address.

    As long as the address is there, the files are not the board. If the crew was renamed by a former try that was
    killed, only the last step is missing.
    """
    paths, aside = crew.paths, ""
    try:
        _refuse_at_work(crew, crew.board.read_as_written())
        crew.update_pages()
        aside = crew_moves.take_crew(address, lambda copy: crew_moves.write_files(paths, copy))
    except NoCrew:
        if not paths.state.exists():
            raise
    _rename(paths, BEFORE_EXPORT, paths.board_address)
    files.fsync_directory(paths.liza)
    moved = Crew(paths, crew.clock)
    state = moved.board.read_as_written()
    confirmed_settings.confirm_all_settings(paths, state)
    record_history(moved)
    kept = f"; the rows are kept in the database as the crew {aside}" if aside else ""
    message = f"the board is in .liza/state.yaml again, at revision {state.revision}{kept}"
    return Result("changed", None, None, "liza resume", {"revision": state.revision, "kept": aside}, message)
