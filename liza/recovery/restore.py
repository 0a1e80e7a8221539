"""restore: restore a missing or unreadable board, or deleted parts of .liza."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

from liza.board.contract import Board, Restored, RestoredArchive
from liza.crew import deleted_parts, layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew, find_lost_crew
from liza.crew.result import Result
from liza.git import board_history
from liza.model.errors import BoardInconsistent, NoCrew, UsageError
from liza.model.model import Agent
from liza.model.paths import Paths, agent_of
from liza.model.statuses import AgentStatus
from liza.programs.session import run_directory
from liza.tasks import archive
from liza.tasks.rules.planning import give_back_work
from liza.tasks.rules.up_command import up_command_for

_RECREATED_NOTE = ".liza was recreated. The history has the board and {goal}; other specs and the logs are lost"
_MENDED = "the missing parts of .liza were recreated, with {goal}. Other deleted files (specs, logs) are lost"
RESTORE_HINT = deleted_parts.AGAIN


def find_crew_or_lost() -> Crew:
    """Return the crew of this directory, also if its board is left only in the history. Raises NoCrew, Refused."""
    try:
        return find_crew()
    except NoCrew:
        crew = find_lost_crew()
        if crew is None:
            raise
        return crew


def restore(crew: Crew, last_good: bool, stop: Callable[[Crew], Result] | None = None) -> Result:
    """Replace a missing, unreadable or truncated board with the newest good one; a broken board is kept as a copy.

    Other deleted parts of .liza are recreated, also if the board can be read. ``stop``: the verb that first ends the
    supervisors and sessions that still run here. Unchanged if nothing is missing. Raises UsageError, Refused,
    BoardInconsistent if no good board is left.
    """
    by = require_person(crew, planner=False)
    if not last_good:
        raise UsageError("restore needs --last-good", "liza restore --last-good")
    board_error = _find_board_error(crew.board)
    no_pins = not deleted_parts.has_pins(crew.paths)
    damaged = no_pins or (
        board_error is None and deleted_parts.describe_damage(crew.paths, crew.board.read()) is not None
    )
    ended = () if stop is None else _stop_everything(crew, stop)
    if board_error is not None or damaged:
        # Also if a part of .liza is left: a supervisor may have written files during a `git clean`.
        layout.refuse_survivors(crew.paths, RESTORE_HINT)
    if no_pins:
        crew = layout.recreate_layout(crew)
    elif damaged or not crew.paths.locks.is_dir():
        layout.create_layout(crew)
    restored = None if board_error is None else crew.board.restore(by, lambda: _last_good_text(crew))
    state = crew.board.read()
    restored_archive = RestoredArchive() if crew.is_on_server else archive.restore_entries(crew, by)
    if restored is None and not damaged and not restored_archive.names:
        return Result("unchanged", None, None, "liza status", {"revision": state.revision, "ended": list(ended)})
    lines = [_ENDED_NOTE.format(", ".join(ended))] if ended else []
    restored_state = state if restored is None else restored.state
    lines += (
        _restore_lines(crew.paths, restored, state.revision)
        if restored
        else [f"the board is unchanged: revision {state.revision}"]
    )
    lines += archive.restored_lines(crew.paths, restored_archive)
    if damaged:
        settings_lines = layout.restore_confirmed_settings(crew) if no_pins else ()
        has_goal = (crew.paths.root / layout.GOAL_FILE).exists()
        has_goal = layout.restore_goal_file(crew, restored_state.goal.description) or has_goal
        fallback = "nothing else" if restored else f"a new page {layout.GOAL_FILE}"
        lines.append((_RECREATED_NOTE if restored else _MENDED).format(goal=layout.GOAL_FILE if has_goal else fallback))
        lines += settings_lines
        _record_stopped(crew, by, restored_state.agents, ended)
    broken_copy = None if restored is None else restored.broken_copy
    details = {
        "revision": state.revision,
        "restored": restored_state.revision,
        "was": board_error,
        "kept": broken_copy and str(broken_copy),
        "archive": list(restored_archive.names),
    }
    is_running = any(map(crew.is_supervised, restored_state.agents))
    lines += ["the crew continues"] * is_running
    step = "liza status" if is_running else up_command_for(restored_state, *restored_state.agents)
    return Result("changed", None, None, step, {**details, "ended": list(ended)}, "\n".join(lines))


def _record_stopped(crew: Crew, by: str, agents: Iterable[str], ended: Iterable[str]) -> None:
    """Give back the work of agents that were ended. Their exit notes are deleted: they only say that the board was
    missing."""
    for agent in agents:
        run_directory.clear_supervisor_exit(crew.paths, agent)
    stopped = {agent_of(name) if "." in name else name for name in ended}
    with crew.change(by, "stop") as tx:
        # Supervisors that noticed the damage have exited; a person who works by hand never had one.
        stopped |= {name for name, agent in tx.state.agents.items() if _left_alone(crew, name, agent)}
        for agent in sorted(stopped & set(tx.state.agents)):
            tx.state = give_back_work(tx.state, agent, crew.clock.now())


def _left_alone(crew: Crew, name: str, agent: Agent) -> bool:
    return agent.program is not None and agent.status != AgentStatus.OFFLINE and not crew.is_supervised(name)


_ENDED_NOTE = "ended processes that still ran here: {}"


def _stop_everything(crew: Crew, stop: Callable[[Crew], Result]) -> tuple[str, ...]:
    """End all supervisors and sessions; return their agents and runs. Raises Refused."""
    ended = layout.end_survivors(crew.paths)
    if not crew.paths.locks.is_dir():
        return ended
    result = stop(crew)
    return (*ended, *result.details["stopped"], *result.details["sessions_ended"])


def _restore_lines(paths: Paths, restored: Restored, now: int) -> list[str]:
    goal = textwrap.shorten(restored.state.goal.description, 80, placeholder=" …")
    lines = [f"revision {restored.state.revision} is restored as revision {now}: {goal}"]
    if restored.broken_copy is not None:
        lines.append(f"the broken board is kept in {restored.broken_copy.relative_to(paths.root)}")
    return lines


def _find_board_error(board: Board) -> str | None:
    """Error of the board; None if it can be read."""
    try:
        board.read()
    except (BoardInconsistent, NoCrew) as error:
        return error.message
    return None


def _last_good_text(crew: Crew) -> str:
    try:
        return crew.board.last_good_text()
    except BoardInconsistent:
        newest = board_history.read_newest(crew.git)
        if newest is None:
            raise
        return newest[1]
