"""restore: bring back a board that cannot be read or is gone, or one task whose status no verb led to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from contextlib import suppress

from liza.board.store import Restored
from liza.board.text import document
from liza.crew import layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew, find_lost_crew
from liza.crew.recovery.recorder import record_history
from liza.crew.result import Result, make_result
from liza.programs.session import run_directory
from liza.repo import board_history
from liza.rules.errors import BoardInconsistent, NoCrew, Refused, UsageError
from liza.rules.model import Agent, Task
from liza.rules.paths import agent_of
from liza.rules.paths import check_task_id as checked_id
from liza.rules.reports.up_command import up_command_for
from liza.rules.tasks import claims, forged_status
from liza.rules.tasks.give_back import give_back_work
from liza.verbs.down import down

MAX_REVISIONS_SEARCHED = 500
"""Revisions that are searched for a task as it was."""

_RECREATED_NOTE = (
    ".liza was laid out anew. Of what lay in it the history has the board and {goal}: no other specs, no logs. What "
    "the repository's own configuration names will not run"
)
_MENDED = (
    "what was missing in .liza was laid out anew, and it has {goal}. Whatever else was deleted (specs, logs) is lost. "
    "What the repository's own configuration names will not run"
)
RESTORE_HINT = layout.AGAIN


def find_crew_or_lost() -> Crew:
    """The crew of this directory, also one of whose board only the history is left. Raises NoCrew, Refused."""
    try:
        return find_crew()
    except NoCrew:
        lost = find_lost_crew()
        if lost is None:
            raise
        return lost


def restore_task(crew: Crew, task_id: str) -> Result:
    """Put a task whose status no verb led to back as it was before. Raises Refused, UnknownId, GitFailed."""
    by = require_person(crew, planner=False)
    before = crew.board.read()
    if forged_status.forgery_reason(before, claims.get_task(before, checked_id(task_id))) is None:
        return Result("unchanged", task_id, before.task(task_id).status, "liza status")  # type: ignore[union-attr]
    record_history(crew)
    revision, earlier = _find_earlier_task(crew, task_id)
    with crew.change(by, forged_status.RESTORE_EVENT, task_id) as tx:
        tx.state = forged_status.restore_task(tx.state, earlier, revision, by, crew.clock.now())
    return make_result(before, tx.state, task_id, f"liza task show {task_id}", restored=revision)


def _find_earlier_task(crew: Crew, task_id: str) -> tuple[int, Task]:
    """The newest revision in which the task was as verbs had left it, and the task there."""
    for entry in board_history.list_revisions(crew.git, None, MAX_REVISIONS_SEARCHED):
        with suppress(BoardInconsistent):
            found = forged_status.get_restorable_task(
                document.load_state(board_history.read_board_at(crew.git, entry.commit)), task_id
            )
            if found is not None:
                return entry.revision, found
    raise Refused(
        f"none of the newest {MAX_REVISIONS_SEARCHED} revisions has {task_id} as a verb left it",
        f"liza history {task_id} -p",
    )


def restore(crew: Crew, last_good: bool, stop: bool = False) -> Result:
    """Put the newest good board in the place of one that is gone, cannot be read or has lost its end, which is kept.

    What else of .liza was deleted is laid anew, also where the board can be read. ``stop``: end first whatever
    supervisors and sessions still work here. Unchanged where nothing is missing.
    Raises Usage, Refused, BoardInconsistent where nothing good is left.
    """
    by = require_person(crew, planner=False)
    if not last_good:
        raise UsageError("say what to bring back: the board, or a task", "liza restore --last-good")
    was = _find_board_error(crew)
    laid = not layout.has_pins(crew)
    damaged = laid or (was is None and layout.damage(crew, crew.board.read()) is not None)
    ended = _stop_everything(crew) if stop else ()
    if was is not None or damaged:
        # Also where a part of .liza is left, as after a `git clean` that a supervisor wrote into.
        layout.refuse_survivors(crew, RESTORE_HINT)
    if laid:
        crew = layout.recreate_layout(crew)
    elif damaged or not crew.paths.locks.is_dir():
        layout.create_layout(crew)
    done = None if was is None else crew.board.restore(by, lambda: _last_good_text(crew))
    now = crew.board.read()
    if done is None and not damaged:
        return Result("unchanged", None, None, "liza status", {"revision": now.revision, "ended": list(ended)})
    lines = [_ENDED_NOTE.format(", ".join(ended))] if ended else []
    good = now if done is None else done.state
    lines += (
        _restore_lines(crew, done, now.revision) if done else [f"the board stands as it was: revision {now.revision}"]
    )
    if damaged:
        counting = layout.restore_confirmed_settings(crew) if laid else ()
        goal = (crew.paths.root / layout.GOAL_FILE).exists()
        goal = layout.restore_goal_file(crew, good.goal.description) or goal
        nothing = "nothing else" if done else f"a new page {layout.GOAL_FILE}"
        lines.append((_RECREATED_NOTE if done else _MENDED).format(goal=layout.GOAL_FILE if goal else nothing))
        lines += counting
        _record_stopped(crew, by, good.agents, ended)
    kept = None if done is None else done.broken_copy
    more = {"revision": now.revision, "restored": good.revision, "was": was, "kept": kept and str(kept)}
    step = up_command_for(good, *good.agents)
    return Result("changed", None, None, step, {**more, "ended": list(ended)}, "\n".join(lines))


def _record_stopped(crew: Crew, by: str, agents: Iterable[str], ended: Iterable[str]) -> None:
    """Agents that were ended have stopped what they held, and why they left, for want of a board, is told already."""
    for agent in agents:
        run_directory.clear_supervisor_exit(crew.paths, agent)
    stopped = {agent_of(one) if "." in one else one for one in ended}
    with crew.change(by, "stop") as tx:
        # Supervisors that noticed have left by themselves; who works by hand never had one.
        stopped |= {name for name, agent in tx.state.agents.items() if _left_alone(crew, name, agent)}
        for agent in sorted(stopped & set(tx.state.agents)):
            tx.state = give_back_work(tx.state, agent, crew.clock.now())


def _left_alone(crew: Crew, name: str, agent: Agent) -> bool:
    return agent.program is not None and agent.status != "OFFLINE" and not crew.is_supervised(name)


_ENDED_NOTE = "ended what still worked here: {}"


def _stop_everything(crew: Crew) -> tuple[str, ...]:
    """The agents and runs that were ended. Raises Refused."""
    ended = layout.end_survivors(crew)
    if not crew.paths.locks.is_dir():
        return ended
    done = down(crew, now=True)
    return (*ended, *done.details["stopped"], *done.details["sessions_ended"])


def _restore_lines(crew: Crew, done: Restored, now: int) -> list[str]:
    goal = textwrap.shorten(done.state.goal.description, 80, placeholder=" …")
    lines = [f"revision {done.state.revision} stands again, as revision {now}: {goal}"]
    if done.broken_copy is not None:
        lines.append(f"the broken board is kept in {done.broken_copy.relative_to(crew.paths.root)}")
    return lines


def _find_board_error(crew: Crew) -> str | None:
    """What is wrong with the board; None where it can be read."""
    try:
        crew.board.read()
    except (BoardInconsistent, NoCrew) as broken:
        return broken.message
    return None


def _last_good_text(crew: Crew) -> str:
    try:
        return crew.board.last_good_text()
    except BoardInconsistent:
        recorded = board_history.read_newest(crew.git)
        if recorded is None:
            raise
        return recorded[1]
