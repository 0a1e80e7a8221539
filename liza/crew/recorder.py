"""Commit the revisions of the journal to the history, one git commit for each.

The supervisors of a crew record together: whichever first sees that a batch is due writes it as a pack, and git joins
packs if there are many (decision 019). A command without a supervisor records at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile

import msgspec

from liza.board import recorded_mark
from liza.board.revisions import RevisionRecord, format_subject, sha
from liza.config import confirmed_settings
from liza.crew.crew import Crew
from liza.git import board_history
from liza.git.board_history import HistoryConflict, NewRevision
from liza.model.errors import BoardInconsistent, LizaError, NotRegularFile
from liza.model.model import Clock
from liza.model.paths import HISTORY_REF, Paths
from liza.model.statuses import AgentStatus
from liza.model.value_classes import decodable, replace
from liza.system import files, untrusted_files
from liza.system.locks import Lock

MAX_WAITING = 1000  # revisions; more are recorded even beside a supervisor
MAX_GOAL = 1 << 20  # bytes of goal.md in the history
BATCH_INTERVAL = 10.0  # seconds that a revision waits at most, while a supervisor runs
QUIET_INTERVAL = 1.0
"""Seconds without a new revision after which a batch is due: without .liza the history is the only copy."""
BATCH_COUNT = 64  # revisions of a batch that does not wait for its time, and at most
_FIRST_EVENT = "init"  # of the revision that `Board.create` writes


def list_waiting(crew: Crew) -> list[RevisionRecord]:
    """Return the revisions that the history does not have, ascending. Raises WriteFailed."""
    return recorded_mark.list_waiting(crew.paths, crew.board.records())


def seconds_to_batch(crew: Crew) -> float | None:
    """Return the seconds until the supervisors have to record, 0 if a batch is due; None if nothing waits.

    Nothing waits on a server: one host at a time exports its journal.
    """
    waiting = [] if crew.is_on_server else list_waiting(crew)
    if not waiting:
        return None
    if len(waiting) >= BATCH_COUNT:
        return 0.0
    oldest, newest = (_age(crew.clock, record.time) for record in (waiting[0], waiting[-1]))
    # A negative age: the clock was set back.
    if oldest is None or newest is None or newest < -1:
        return 0.0
    return max(0.0, min(BATCH_INTERVAL - oldest, QUIET_INTERVAL - newest))


def _age(clock: Clock, time: str) -> float | None:
    """Return the seconds since a time of the journal, which has whole seconds; None if it is no time."""
    try:
        return (clock.now() - _parse_time(time)).total_seconds()
    except (ValueError, OverflowError):
        return None


def _parse_time(time: str) -> datetime:
    moment = datetime.fromisoformat(time)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def record_history(crew: Crew, *, packed: bool = False) -> int:
    """Commit what waits in ascending order. Return the number of revisions; 0 if another process is recording, and for
    a board on a server.

    ``packed``: write packs, and let git join them if there are many.
    """
    if crew.is_on_server:
        return 0
    lock = Lock(crew.paths.recorder_lock)
    count = 0
    previous: list[int] = []
    while lock.try_acquire():
        try:
            count += record_batch(crew, packed)
        finally:
            lock.release()
        # Another process may have written, found the lock held and returned: look again.
        waiting = _recordable_revisions(crew)
        if not waiting or waiting == previous:
            break
        previous = waiting
    return count


def _recordable_revisions(crew: Crew) -> list[int]:
    """Return the waiting revisions that the board has reached. After a crash the journal may have one that it never
    reaches.
    """
    try:
        reached = crew.board.read().revision
    except BoardInconsistent:
        return []
    waiting = list_waiting(crew)
    return [record.revision for record in waiting if record.revision <= reached]


def record_batch(crew: Crew, packed: bool) -> int:
    """Commit the oldest waiting revisions; return how many. The caller holds the lock of the recorder, or is the
    exporter. Raises GitFailed, WriteFailed."""
    if recorded_mark.read_mark(crew.paths) is None and (same := find_recorded(crew)) is not None:
        recorded_mark.write_mark(crew.paths, same[0])
    # `record_history` continues with the rest.
    waiting = _recordable_revisions(crew)[:BATCH_COUNT]
    if not waiting:
        return 0
    recorded: set[int] = set()

    def new_revisions() -> Iterator[NewRevision]:
        previous = None
        for line, text in _rebuild_batch(crew, waiting):
            if previous is not None:
                yield previous
            previous = _new_revision(line, text)
            recorded.add(line.revision)
        if previous is not None:
            yield _with_files(crew, previous)

    try:
        count = board_history.record_revisions(crew.git, new_revisions(), packed=packed)
    except HistoryConflict as conflict:
        fields = conflict.message, conflict.hint, conflict.newest
        files.replace_unsynced(crew.paths.history_conflict, msgspec.json.encode(fields))
        return 0
    crew.paths.history_conflict.unlink(missing_ok=True)
    # Newer revisions are not recorded yet.
    recorded_mark.write_mark(crew.paths, waiting[-1])
    _report_unrecorded(crew, [number for number in waiting if number not in recorded])
    if packed:
        # The revisions are recorded already: a failure only leaves more packs.
        with suppress(LizaError, OSError):
            board_history.maintain_objects(crew.git)
    return count


def find_recorded(crew: Crew) -> tuple[int, str] | None:
    """Return the newest revision of the history with its text, if the journal has the same one.

    Else the history may be of another crew, or .liza is an older copy.
    """
    newest = board_history.read_newest(crew.git)
    if newest is not None:
        digest = sha(newest[1].encode("utf-8", "surrogateescape"))
        for record in takewhile(lambda record: record.revision >= newest[0], crew.board.records()):
            if record.revision == newest[0] and record.sha256 == digest:
                return newest
    return None


def _rebuild_batch(crew: Crew, waiting: list[int]) -> Iterator[tuple[RevisionRecord, str]]:
    """Yield the revisions of ``waiting`` with their texts, without those that cannot be rebuilt.

    The board is the text of the newest one. If that cannot be rebuilt, the next batch is built on the board.
    """
    newest = next(crew.board.records(), None)
    board = crew.board.read_text()
    has_board = newest is not None and newest.revision == waiting[-1] and sha(board.encode()) == newest.sha256
    last = 0
    if len(waiting) > 1 or not has_board:
        base = find_recorded(crew)
        if base is not None and base[0] != recorded_mark.read_mark(crew.paths):
            base = None
        texts = crew.board.texts(waiting[0], base)
        for line, text in takewhile(lambda item: item[0].revision <= waiting[-1], texts):
            if line.revision >= waiting[0] and _has_valid_time(line):
                last = line.revision
                yield line, text
    if has_board and newest is not None and last < newest.revision and _has_valid_time(newest):
        yield newest, board


def _has_valid_time(line: RevisionRecord) -> bool:
    """Return whether git accepts the time of a line."""
    try:
        return _parse_time(line.time).timestamp() >= 0
    except (ValueError, OverflowError):
        return False


def read_conflict(crew: Crew) -> HistoryConflict | None:
    """Return why the last batch was not recorded: the history has other revisions. None if it can be recorded now.

    Raises GitFailed.
    """
    path = crew.paths.history_conflict
    try:
        fields = msgspec.json.decode(untrusted_files.read_record(path), type=decodable(tuple[str, str, str]))
    except (FileNotFoundError, NotRegularFile, msgspec.DecodeError):
        # The next attempt to record writes a damaged file anew.
        return None
    conflict = HistoryConflict(*fields)
    # The exporter of a crew on several hosts removes the file when it succeeds.
    return conflict if crew.is_on_server or crew.git.find_commit(HISTORY_REF) == conflict.newest else None


def _new_revision(line: RevisionRecord, text: str) -> NewRevision:
    return NewRevision(
        revision=line.revision,
        subject=format_subject(line),
        body="",
        time=_parse_time(line.time),
        author=line.actor,
        text=text,
        is_first=line.event == _FIRST_EVENT,
    )


def _with_files(crew: Crew, last: NewRevision) -> NewRevision:
    """Return the last revision of a batch with the files beside the board.

    They are not fields of the board, but a person's data, too: `git clean -x` would delete them with .liza.
    """
    return replace(
        last,
        goal=_read_goal(crew.paths),
        settings=confirmed_settings.export_settings(crew.paths),
        archive=_changed_archive(crew),
    )


def _changed_archive(crew: Crew) -> dict[str, bytes]:
    """Return the archive files that differ from the history; none if the archive is damaged or cannot be read.

    The history keeps the version before the damage, from which `restore` writes.
    """
    with suppress(LizaError, OSError):
        state = crew.board.read()
        present = crew.board.read_archive() if crew.board.find_archive_damage(state) is None else {}
        if present:
            recorded = board_history.list_archive(crew.git)
            pairs = present.items()
            return {name: data for name, data in pairs if not board_history.has_content(recorded.get(name), data)}
    return {}


def _report_unrecorded(crew: Crew, revisions: list[int]) -> None:
    """Log the revisions that the history lacks because their lines in the journal are damaged."""
    name = crew.paths.journal.name
    lines = [f"history  revision {revision} cannot be read in {name}; the history lacks it" for revision in revisions]
    if lines:
        with suppress(LizaError, OSError):
            crew.append_alert_log(lines)


def _read_goal(paths: Paths) -> bytes | None:
    """Return goal.md, or None if it is not a regular file of at most MAX_GOAL bytes."""
    try:
        return untrusted_files.read_if_exists(paths.specs / "goal.md", MAX_GOAL)
    except (LizaError, OSError):
        return None


def record_if_unsupervised(crew: Crew) -> None:
    """Record the history at the end of a command if no supervisor is alive to do it.

    More than MAX_WAITING revisions are recorded in any case.
    """
    waiting = [] if crew.is_on_server else list_waiting(crew)
    if not waiting:
        return
    if len(waiting) > MAX_WAITING:
        record_history(crew)
        return
    locks = crew.paths.locks.glob("supervisor-*.lock")
    if not any(crew.is_supervised_here(lock.name.removeprefix("supervisor-").removesuffix(".lock")) for lock in locks):
        record_history(crew)


def record_at_exit(crew: Crew, agent: str) -> None:
    """Record at the end of the supervisor of ``agent``, which the board shows as OFFLINE, if it is the last one.

    The board orders the exits: of several supervisors that exit at the same time, the last one sees no other at work.
    """
    agents = crew.board.read().agents.items()
    others = (name for name, other in agents if name != agent and other.status != AgentStatus.OFFLINE)
    if not any(crew.is_supervised(name) for name in others):
        record_history(crew, packed=True)
