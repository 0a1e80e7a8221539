"""The session is over: say on the board what came of it, once, and leave the run settled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.recovery.run_cleanup import tidy
from liza.programs.presets.preset import Preset
from liza.programs.session import outcomes, session_process, transcript
from liza.programs.session.failure_patterns import ModelTrouble, Signs, trouble
from liza.programs.session.run_directory import Halt, RunDir, RunRecord
from liza.programs.terminal import tmux
from liza.programs.usage import ledger
from liza.programs.usage.meter import Meter
from liza.rules.errors import LizaError, Refused
from liza.rules.model import State, Status
from liza.rules.sessions import model_silence
from liza.rules.sessions.loop_detection import NO_PROGRESS
from liza.rules.sessions.spending import Spent, Used
from liza.rules.tasks import claims, coding, planning, reviews
from liza.rules.tasks.claims import HELD_UP, QUOTA, STOP, TOLD_ONLY, UNANSWERED, UNUSABLE
from liza.supervisor.observe import recorded
from liza.supervisor.worktree_files import strip
from liza.system import crash_points

LOOPED = "looped"
"""What came of a session that made no progress and was ended for it."""
SCREEN = 2000  # lines of a terminal that are kept besides those on its screen
LAST_OUTPUT = 64 << 10  # bytes: some programs print much after what tells why they end
_BRIEF_END = re.compile(r"<!-- liza:end run=\S+ -->")


@dataclass(frozen=True)
class Came:
    """What came of a session: ``kind`` is finished, handed off, crashed, looped, stopped, held up, quota,
    unanswered or unusable.

    ``why`` is a sentence, ``until`` when a limit of use is over, where that was said. ``by_hand``: a person has to
    start the program once, and to answer it or log in.
    """

    run: str
    kind: str
    why: str
    until: datetime | None = None
    by_hand: bool = False


def settle(crew: Crew, directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> Came:
    """Carry the end of a session onto the board. Repeatable: every step judges what is there. ``environ`` is the
    supervisor's own."""
    record = recorded(crew, crew.board.read(), directory)
    _keep_screen(crew, directory)
    directory.note_asks(None)
    directory.note_model(None)
    came = _held_up(directory, _what_came(crew, directory, preset))
    session_process.stop(directory.path, directory.run, crew.paths.root, grace=0.0)
    crash_points.point("settle", "stopped")
    if record is not None:
        strip(crew, record)
        crash_points.point("settle", "brief-gone")
        _tell(crew, record, came)
        crash_points.point("settle", "told")
        meter = Meter(preset, directory, record.started, environ, crew.clock.monotonic)
        _write_down(crew, directory, record, came, _used(meter))
    directory.note_settled(f"{came.kind}: {came.why}")
    # In nobody's way if it fails: the next end, or the next supervisor, does it.
    with suppress(LizaError, OSError):
        tidy(crew, directory.agent)
    return came


def _used(meter: Meter) -> Used | None:
    """What the session used; nobody knows where its files cannot be read, of which its end tells."""
    try:
        return meter.final()
    except OSError:
        return None


def _keep_screen(crew: Crew, directory: RunDir) -> None:
    """What the terminal shows is gone with it, and says more than the bytes that drew it. A server that does not answer
    keeps no end from being told."""
    with suppress(Refused):
        pane = tmux.pane(crew.paths.root, directory.run)
        if pane is not None and not directory.screen.exists():
            directory.note_screen(pane.capture(history=SCREEN))


def _what_came(crew: Crew, directory: RunDir, preset: Preset) -> Came:
    found = session_process.look(directory.path)
    halt = directory.stopped()
    if isinstance(found, session_process.Living | session_process.ShimStarting | session_process.Never):
        return Came(directory.run, "stopped", "its program was never started")
    reason = halt.reason if halt else None
    found_trouble = _trouble(crew, directory, preset)
    moved, begun = _moved(crew, directory), directory.is_ready()
    match outcomes.outcome(found, directory.word(), preset.exit_codes, moved, reason, found_trouble, begun=begun):
        case outcomes.Halted(why) if why.startswith(NO_PROGRESS):
            return Came(directory.run, LOOPED, why)
        case outcomes.Halted(why) if why in outcomes.ON_PURPOSE:
            return Came(directory.run, "stopped" if why == STOP else "finished", why)
        case outcomes.Limited() | outcomes.ModelRefused() | outcomes.NoModelAnswer() | outcomes.Halted() if (
            halt is not None and halt.model
        ):
            return _model_failed(directory.run, halt, found_trouble)
        case outcomes.Completed():
            return Came(directory.run, "finished", _last_lines(directory))
        case outcomes.HandedOff():
            return Came(directory.run, "handed off", _last_lines(directory))
        case outcomes.Limited(why, until):
            return Came(directory.run, QUOTA, why, until)
        case outcomes.NotBegun(why):
            return Came(directory.run, HELD_UP, why)
        case outcomes.NoModelAnswer(why):
            return Came(directory.run, UNANSWERED, why)
        case outcomes.NeverRan(why):
            return Came(directory.run, UNUSABLE, why)
        case outcomes.ModelRefused(why):
            return Came(directory.run, UNUSABLE, why, by_hand=True)
        case outcomes.Halted(why) if halt is not None and halt.unusable:
            return Came(directory.run, UNUSABLE, why, by_hand=True)
        case outcomes.Halted(why) | outcomes.Crashed(why):
            last = _last_lines(directory)
            return Came(directory.run, "crashed", why if why.endswith(last) else f"{why}. {last}")


def _model_failed(run: str, halt: Halt, said: ModelTrouble | None) -> Came:
    """What came of a session that its supervisor ended because its model gave no answer."""
    if halt.model == model_silence.LOGIN:
        return Came(run, UNUSABLE, halt.reason, by_hand=True)
    if halt.model == model_silence.QUOTA:
        until = said.until if said is not None and said.kind == model_silence.QUOTA else None
        return Came(run, QUOTA, halt.reason, until)
    return Came(run, UNANSWERED, halt.reason)


def _trouble(crew: Crew, directory: RunDir, preset: Preset) -> ModelTrouble | None:
    """What the program's last words say that kept its model from answering; a time of day is one of this machine's."""
    said = directory.last_said() if directory.screen.exists() else directory.tail(LAST_OUTPUT)
    return trouble(Signs(preset.failures, preset.answers), said, crew.clock.now().astimezone())


def _write_down(crew: Crew, directory: RunDir, record: RunRecord, came: Came, used: Used | None) -> None:
    """What the session used, in the ledger."""
    found = session_process.look(directory.path)
    over = found.time if isinstance(found, session_process.Ended) else crew.clock.now()
    spent = Spent(
        run=record.run,
        time=over,
        kind=record.kind,
        program=record.spec or record.program,
        outcome=came.kind,
        seconds=max(0.0, (over - record.started).total_seconds()),
        task=record.task,
        sprint=crew.board.read().sprint.id,
        used=used,
    )
    ledger.note(crew.paths, spent)


def _held_up(directory: RunDir, came: Came) -> Came:
    """What came of a session that could not say its word for the board's or the disk's sake is not its own fault."""
    note, halt = directory.held_up(), directory.stopped()
    on_purpose = halt is not None and halt.reason in outcomes.ON_PURPOSE
    if note is None or not coding.is_held_up(came.kind, directory.word(), on_purpose):
        return came
    return Came(directory.run, HELD_UP, f"liza {note.verb}: {note.reason}")


def _moved(crew: Crew, directory: RunDir) -> bool:
    """Whether the session made a commit."""
    record = recorded(crew, crew.board.read(), directory)
    if record is None or not record.worktree:
        return False
    slot = Path(record.worktree).name
    if crew.worktrees.stands(slot):
        return crew.worktrees.head(slot) != record.commit
    # The slot was destroyed, or git's records of it: what was committed in it is on the branch.
    tip = crew.worktrees.tip(record.task) if record.kind == "work" and record.task else None
    return tip is not None and tip != record.commit


def _last_lines(directory: RunDir) -> str:
    """What the program itself said last. `liza ready` prints the brief into the same log; that explains nothing."""
    own = _BRIEF_END.split(directory.last_said())[-1]
    lines = list(transcript.lines(own))
    return " / ".join(lines[-3:])[:400] or directory.unreadable() or "It said nothing."


def _tell(crew: Crew, record: RunRecord, came: Came) -> None:
    now = crew.clock.now()
    state = crew.board.read()
    if record.kind == "planning":
        if state.planning.run == record.run:
            _tell_planning(crew, record, came)
        return
    assert record.task is not None
    if record.kind == "review":
        _tell_review(crew, record, came)
        return
    task = state.task(record.task)
    if task is None or task.run != record.run or task.status is not Status.CLAIMED:
        return
    with crew.change(record.agent, _EVENTS[came.kind], record.task) as tx:
        tx.state = (
            _after_work(crew, tx.state, record, came)
            if came.kind != "stopped"
            else claims.stop(tx.state, record.task, record.run, now)
        )


_EVENTS = {"crashed": "crash", "finished": "ended", "handed off": "ended", "stopped": STOP}
_EVENTS[LOOPED] = "ended"
_EVENTS |= {kind: kind for kind in TOLD_ONLY}


def _tell_planning(crew: Crew, record: RunRecord, came: Came) -> None:
    held_up = came.kind in TOLD_ONLY
    with crew.change(record.agent, "planning held up" if held_up else "planning over") as tx:
        after = planning.planning_held_up if held_up else planning.planning_over
        tx.state = after(tx.state, record.run)


def _after_work(crew: Crew, state: State, record: RunRecord, came: Came) -> State:
    assert record.task is not None
    moved = came.kind != LOOPED and _moved(crew, crew.run_dir(record.run))
    return coding.session_over(
        state, record.task, record.run, event=_EVENTS[came.kind], detail=came.why, moved=moved, now=crew.clock.now()
    )


def _tell_review(crew: Crew, record: RunRecord, came: Came) -> None:
    assert record.task is not None
    task = crew.board.read().task(record.task)
    if task is None or task.review_run != record.run:
        return
    now = crew.clock.now()
    with crew.change(record.agent, "release review", record.task) as tx:
        if came.kind == "stopped":
            tx.state = reviews.release_review(tx.state, record.task, record.run, now)
        elif came.kind in TOLD_ONLY:
            tx.state = reviews.release_review(tx.state, record.task, record.run, now, f"{came.kind}: {came.why}")
        else:
            tx.state = reviews.review_without_verdict(tx.state, record.task, record.run, now, came.why)
