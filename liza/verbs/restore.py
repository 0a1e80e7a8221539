"""restore: bring back a board that cannot be read or is gone, or one task whose status no verb led to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from contextlib import suppress

from liza.board.store import Restored
from liza.board.text import document
from liza.crew import layout
from liza.crew.caller import human_or
from liza.crew.crew import Crew, find_crew, find_lost
from liza.crew.recovery.recorder import record
from liza.crew.result import Result, answer
from liza.programs.session import run_directory
from liza.repo import board_history
from liza.rules.errors import BoardInconsistent, NoCrew, Refused, Usage
from liza.rules.model import Agent, Task
from liza.rules.paths import agent_of
from liza.rules.paths import task_id as checked_id
from liza.rules.reports.up_command import starting
from liza.rules.tasks import claims, forged_status
from liza.rules.tasks.give_back import let_go
from liza.verbs.down import down

MOST_LOOKED_AT = 500
"""Revisions that are searched for a task as it was."""

_LAID = (
    ".liza was laid out anew. Of what lay in it the history has the board and {goal}: no other specs, no logs. What "
    "the repository's own configuration names will not run"
)
_MENDED = (
    "what was missing in .liza was laid out anew, and it has {goal}. Whatever else was deleted (specs, logs) is lost. "
    "What the repository's own configuration names will not run"
)
AGAIN = layout.AGAIN


def crew_here() -> Crew:
    """The crew of this directory, also one of whose board only the history is left. Raises NoCrew, Refused."""
    try:
        return find_crew()
    except NoCrew:
        lost = find_lost()
        if lost is None:
            raise
        return lost


def restore_task(crew: Crew, task_id: str) -> Result:
    """Put a task whose status no verb led to back as it was before. Raises Refused, UnknownId, GitFailed."""
    by = human_or(crew, planner=False)
    before = crew.board.read()
    if forged_status.forged(before, claims.find(before, checked_id(task_id))) is None:
        return Result("unchanged", task_id, before.task(task_id).status, "liza status")  # type: ignore[union-attr]
    record(crew)
    revision, earlier = _earlier(crew, task_id)
    with crew.change(by, forged_status.EVENT, task_id) as tx:
        tx.state = forged_status.put_back(tx.state, earlier, revision, by, crew.clock.now())
    return answer(before, tx.state, task_id, f"liza task show {task_id}", restored=revision)


def _earlier(crew: Crew, task_id: str) -> tuple[int, Task]:
    """The newest revision in which the task was as verbs had left it, and the task there."""
    for entry in board_history.log(crew.git, None, MOST_LOOKED_AT):
        with suppress(BoardInconsistent):
            found = forged_status.usable(document.load(board_history.text_at(crew.git, entry.commit)), task_id)
            if found is not None:
                return entry.revision, found
    raise Refused(
        f"none of the newest {MOST_LOOKED_AT} revisions has {task_id} as a verb left it", f"liza history {task_id} -p"
    )


def restore(crew: Crew, last_good: bool, stop: bool = False) -> Result:
    """Put the newest good board in the place of one that is gone, cannot be read or has lost its end, which is kept.

    What else of .liza was deleted is laid anew, also where the board can be read. ``stop``: end first whatever
    supervisors and sessions still work here. Unchanged where nothing is missing.
    Raises Usage, Refused, BoardInconsistent where nothing good is left.
    """
    by = human_or(crew, planner=False)
    if not last_good:
        raise Usage("say what to bring back: the board, or a task", "liza restore --last-good")
    was = _complaint(crew)
    laid = not layout.has_pins(crew)
    damaged = laid or (was is None and layout.damage(crew, crew.board.read()) is not None)
    ended = _stopped(crew) if stop else ()
    if was is not None or damaged:
        # Also where a part of .liza is left, as after a `git clean` that a supervisor wrote into.
        layout.refuse_survivors(crew, AGAIN)
    if laid:
        crew = layout.lay_again(crew)
    elif damaged or not crew.paths.locks.is_dir():
        layout.lay(crew)
    done = None if was is None else crew.board.restore(by, lambda: _newest(crew))
    now = crew.board.read()
    if done is None and not damaged:
        return Result("unchanged", None, None, "liza status", {"revision": now.revision, "ended": list(ended)})
    lines = [_ENDED.format(", ".join(ended))] if ended else []
    good = now if done is None else done.good
    lines += _told(crew, done, now.revision) if done else [f"the board stands as it was: revision {now.revision}"]
    if damaged:
        counting = layout.confirm_again(crew) if laid else ()
        goal = (crew.paths.root / layout.GOAL).exists()
        goal = layout.lay_goal(crew, good.goal.description) or goal
        nothing = "nothing else" if done else f"a new page {layout.GOAL}"
        lines.append((_LAID if done else _MENDED).format(goal=layout.GOAL if goal else nothing))
        lines += counting
        _settle(crew, by, good.agents, ended)
    kept = None if done is None else done.kept
    more = {"revision": now.revision, "restored": good.revision, "was": was, "kept": kept and str(kept)}
    step = starting(good, *good.agents)
    return Result("changed", None, None, step, {**more, "ended": list(ended)}, "\n".join(lines))


def _settle(crew: Crew, by: str, agents: Iterable[str], ended: Iterable[str]) -> None:
    """Agents that were ended have stopped what they held, and why they left, for want of a board, is told already."""
    for agent in agents:
        run_directory.forget_left(crew.paths, agent)
    stopped = {agent_of(one) if "." in one else one for one in ended}
    with crew.change(by, "stop") as tx:
        # Supervisors that noticed have left by themselves; who works by hand never had one.
        stopped |= {name for name, agent in tx.state.agents.items() if _left_alone(crew, name, agent)}
        for agent in sorted(stopped & set(tx.state.agents)):
            tx.state = let_go(tx.state, agent, crew.clock.now())


def _left_alone(crew: Crew, name: str, agent: Agent) -> bool:
    return agent.program is not None and agent.status != "OFFLINE" and not crew.supervised(name)


_ENDED = "ended what still worked here: {}"


def _stopped(crew: Crew) -> tuple[str, ...]:
    """The agents and runs that were ended. Raises Refused."""
    ended = layout.end_survivors(crew)
    if not crew.paths.locks.is_dir():
        return ended
    done = down(crew, now=True)
    return (*ended, *done.more["stopped"], *done.more["sessions_ended"])


def _told(crew: Crew, done: Restored, now: int) -> list[str]:
    goal = textwrap.shorten(done.good.goal.description, 80, placeholder=" …")
    lines = [f"revision {done.good.revision} stands again, as revision {now}: {goal}"]
    if done.kept is not None:
        lines.append(f"the broken board is kept in {done.kept.relative_to(crew.paths.root)}")
    return lines


def _complaint(crew: Crew) -> str | None:
    """What is wrong with the board; None where it can be read."""
    try:
        crew.board.read()
    except (BoardInconsistent, NoCrew) as broken:
        return broken.message
    return None


def _newest(crew: Crew) -> str:
    try:
        return crew.board.last_good()
    except BoardInconsistent:
        recorded = board_history.tip(crew.git)
        if recorded is None:
            raise
        return recorded[1]
