"""join: make this clone one of a crew whose board is on a server."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import ExitStack
from pathlib import Path

from liza.board import crew_moves
from liza.board.address import BoardAddress, read_address, write_address
from liza.board.opening import open_server_board
from liza.board.presence import has_board_or_intent
from liza.board.rules.host_leases import HostCondition, HostTable, judge_host
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew import layout, shared_pages
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import hiding, slots_directory
from liza.git.git_refs import HEADS
from liza.git.root_commits import find_missing_commits, is_shallow, unshallow_command
from liza.git.runner import Git
from liza.git.survey import Survey, clone_command
from liza.model.errors import LizaError, LockTimeout, NoCrew, Refused
from liza.model.model import State
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.project import shared_board
from liza.project.baseline import ReportFact
from liza.project.init import (
    LOCK_TIMEOUT,
    RecordOrigin,
    init_marker,
    is_interrupted_init,
    refuse_foreign_files,
    survey_place,
    undo_init,
)
from liza.system.clock import SystemClock
from liza.system.locks import lock_path
from liza.tasks import shared_code
from liza.text.formats import closest_match

_MAX_SHOWN = 10
"""Crews of a database that an error names."""


def join(
    directory: Path,
    url: str,
    host: str | None = None,
    say: ReportFact = lambda name, text: None,
    record_origin: RecordOrigin = lambda crew, branch: None,
) -> Result:
    """Make the clone that ``directory`` is in one of the crew at ``url``. ``host``: the name of this host.

    ``say`` is called with each fact, such as the settings of the board that count here from now on. Nothing is left if
    it fails. Raises UsageError, Refused, NoCrew, BoardServerRefused, BoardUnavailable, GitFailed.
    """
    surveyed = survey_place(directory)
    crew = Crew(Paths(surveyed.root), SystemClock())
    has_crew = has_board_or_intent(crew.paths) and not is_interrupted_init(crew.paths)
    if has_crew:
        require_person(crew, planner=False)
    address = shared_board.choose_address(crew.git, url, host)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_path(surveyed.root / ".git", timeout=LOCK_TIMEOUT))
        except LockTimeout:
            text = f"another `liza init` or `liza join` runs in {surveyed.root}"
            raise Refused(text, "liza status") from None
        if has_crew:
            return _join_again(crew, address, surveyed)
        return _join(crew, address, surveyed, say, record_origin)


def _join_again(crew: Crew, address: BoardAddress, surveyed: Survey) -> Result:
    """Return that this clone has joined already, perhaps with another name of the host. Raises Refused."""
    present = read_address(crew.paths.board_address)
    clone, _ = clone_command(surveyed.repository)
    if present is None:
        text = f"{crew.paths.root} has a crew of its own; a clone has one crew"
        raise Refused(text, f"{clone} && {join_command(address)}")
    if (present.url, present.crew) != (address.url, address.crew):
        text = f"{crew.paths.root} belongs to the crew {present.crew} at {present.server}; a clone has one crew"
        raise Refused(text, f"{clone} && {join_command(address)}")
    details = {"crew": address.crew, "host": address.host}
    if present == address:
        return Result("unchanged", None, None, "liza status", details, f"{crew.paths.root} has joined already")
    running = [name for name in crew.board.read().agents if crew.is_supervised_here(name)]
    if running:
        raise Refused(f"supervisors run here as those of host {present.host}: {', '.join(running)}", "liza down")
    write_address(crew.paths.board_address, address)
    message = f"this host is {address.host} from now on, not {present.host}"
    return Result("changed", None, None, "liza status", details, message)


def join_command(address: BoardAddress) -> str:
    """Return the command that joins the crew at ``address``."""
    return shlex.join(["liza", "join", address.full_url])


def _join(crew: Crew, address: BoardAddress, surveyed: Survey, say: ReportFact, record_origin: RecordOrigin) -> Result:
    if is_interrupted_init(crew.paths):
        undo_init(crew, surveyed)
        say("left", "files of a command that was killed; removed")
    refuse_foreign_files(crew)
    layout.refuse_survivors(crew.paths)
    roots = crew_moves.read_repository(address)
    if roots is None:
        raise _missing_crew(address)
    _refuse_other_repository(crew.git, address.crew, roots)
    board = open_server_board(address, crew.paths, crew.clock)
    _refuse_living_host(board.hosts(), address)
    state = board.read()
    record = slots_directory.choose_directory(crew.paths.root, None, os.environ)
    crew = replace(crew, paths=replace(crew.paths, chosen_slots=record.directory))
    crew.paths.liza.mkdir(exist_ok=True)
    try:
        init_marker(crew.paths).touch()
        slots_directory.write_record(crew.paths, record)
        layout.create_layout(crew)
        hiding.install_filter(crew.git)
        confirmed_settings.create_pins(crew.paths)
        origin = record_origin(crew, surveyed.branch)
        if origin is not None:
            say(*origin)
        write_address(crew.paths.board_address, address)
        joined = replace(crew, remote_name=address.remote)
        shared_pages.update_pages(joined.paths, joined.board)
        layout.restore_goal_file(joined, state.goal.description)
        branch = state.config.integration_branch
        created = _take_integration(joined, branch, say)
        tip = joined.git.find_commit(HEADS + branch)
        crew.paths.creation.write_text(json.dumps({"branch": created, "at": tip}) + "\n")
        init_marker(crew.paths).unlink()
    except BaseException:
        undo_init(crew, surveyed)
        raise
    _report_crew(state, address, say)
    details = {"crew": address.crew, "host": address.host, "revision": state.revision}
    return Result("changed", None, None, "liza status", details)


def _missing_crew(address: BoardAddress) -> NoCrew:
    """Return the error for a database without the crew, with the crews that it has: the name may be mistyped."""
    crews = crew_moves.list_crews(address)
    shown = f"; it has {', '.join(crews[:_MAX_SHOWN])}{' and others' if len(crews) > _MAX_SHOWN else ''}"
    match = closest_match(address.crew, crews)
    create = f'liza init "what you want to have" --board {shlex.quote(address.full_url)}'
    return NoCrew(
        f"the database at {address.server} has no crew {address.crew}{shown if crews else ''}",
        create if match is None else join_command(replace(address, crew=match)),
    )


def _refuse_living_host(table: HostTable | None, address: BoardAddress) -> None:
    """Raise Refused if the name of this host is that of another one which is alive."""
    if table is None:
        return
    for row in table.hosts:
        if row.name == address.host and judge_host(row, table.now, table.started) is not HostCondition.LOST:
            raise Refused(
                f"{row.name} is the name of the host at {row.address}; each host needs a name of its own",
                "liza help join",
            )


def _refuse_other_repository(git: Git, crew: str, roots: tuple[str, ...]) -> None:
    """Raise Refused if this is no clone of the repository of a crew, whose root commits are ``roots``."""
    missing = find_missing_commits(git, roots)
    if not missing:
        return
    if is_shallow(git):
        raise Refused("this clone is shallow: without its first commits it cannot be compared", unshallow_command(git))
    raise Refused(
        f"the crew {crew} works on another repository: its first commit {missing[0][:12]} is not in this clone",
        "git log --max-parents=0",
    )


def _report_crew(state: State, address: BoardAddress, say: ReportFact) -> None:
    say("crew", f"{address.crew} at {address.server}: {state.goal.description}")
    say("host", f"this host is {address.host} there")
    effective = settings.list_effective(state.config)
    if effective:
        say("settings", "the commands and settings of the board count here, too; hosts of a crew trust each other:")
    for text in effective:
        say("", f"config.{text}")


def _take_integration(crew: Crew, branch: str, say: ReportFact) -> str | None:
    """Let the branch of the merges follow the remote. Return it if this clone had no such branch.

    A remote that cannot be reached, or that has no such branch yet, is only reported: each claim fetches again.
    """
    is_new = crew.git.find_commit(HEADS + branch) is None
    remote = shared_code.find_remote(crew)
    assert remote is not None
    try:
        tip, obstacle = shared_code.fetch_target(crew, remote, branch)
        if obstacle is not None:
            raise obstacle
    except LizaError as error:
        say("branch", f"{error.message}: {error.hint}")
        return None
    say("branch", f"{branch} at {tip[:12]}, as {remote.name} has it; your checkout and files stay untouched")
    return branch if is_new else None
