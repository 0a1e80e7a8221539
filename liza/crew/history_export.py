"""Export the journal of a crew on several hosts to the git remote, as the history that a crew in files has here.

One host at a time has the duty. It commits to its own ref, and pushes that, never forced: the ref of the remote names
what is exported. Another host that gets the duty goes on from there.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

import msgspec

from liza.board import recorded_mark
from liza.board.revisions import sha
from liza.crew import recorder
from liza.crew.crew import Crew
from liza.git import board_history, git_refs
from liza.git.board_history import HistoryConflict
from liza.git.git_remote import FETCH_OPTIONS, PUSH_OPTIONS
from liza.git.rules.push_address import PushFailure
from liza.git.shared_remote import SharedRemote, open_remote
from liza.model.paths import HISTORY_REF
from liza.system import files

DUTY: Final = "exporter"
_FETCHED: Final = "refs/liza/fetched-blackboard"
_MAX_BATCHES: Final = 50  # of one export; the next one goes on


def has_news(crew: Crew) -> bool:
    """Return whether the newest revision that this clone has recorded is not that of the board: after a restore of the
    database it is newer, which the export refuses. Raises BoardUnavailable, GitFailed."""
    newest = next(crew.board.records(), None)
    recorded = board_history.newest_revision(crew.git)
    return newest is not None and newest.revision != recorded


def export_history(crew: Crew) -> int:
    """Commit what waits, and push it; return the number of revisions. The host has the duty.

    Raises HistoryConflict if the remote has other revisions, RemoteUnavailable, Refused, Missing, GitFailed.
    """
    remote = open_remote(crew.git, crew.remote_name, crew.paths)
    try:
        _take_over(crew, remote)
        count = _record(crew)
        _push(crew, remote)
    except HistoryConflict as conflict:
        fields = conflict.message, conflict.hint, conflict.newest
        files.replace_unsynced(crew.paths.history_conflict, msgspec.json.encode(fields))
        raise
    crew.paths.history_conflict.unlink(missing_ok=True)
    return count


def fetch_history(crew: Crew) -> None:
    """Bring the exported history into this clone, unless it has it. Raises HistoryConflict and what git raises."""
    _take_over(crew, open_remote(crew.git, crew.remote_name, crew.paths))


def _take_over(crew: Crew, remote: SharedRemote) -> None:
    """Replace the history of this clone by that of the remote, unless it is contained."""
    tip, own = remote.list_refs(HISTORY_REF).get(HISTORY_REF), crew.git.find_commit(HISTORY_REF)
    if tip is None or tip == own or (own is not None and git_refs.is_contained(crew.git, tip, own)):
        return
    result = remote.call("fetch", *FETCH_OPTIONS, patterns=[f"+{HISTORY_REF}:{_FETCHED}"])
    if result.code != 0:
        raise remote.explain(result)
    fetched = crew.git.find_commit(_FETCHED) or tip
    crew.git.out("update-ref", HISTORY_REF, fetched, own or "")
    crew.git.out("update-ref", "-d", _FETCHED)
    if not _is_of_crew(crew):
        # What was here comes back.
        crew.git.out("update-ref", *((HISTORY_REF, own) if own else ("-d", HISTORY_REF)), fetched)
        raise _conflict(remote, fetched)


def _is_of_crew(crew: Crew) -> bool:
    """Return whether the history ends with a revision of the journal, or with one that is older than the journal."""
    newest = board_history.read_newest(crew.git)
    if newest is None:
        return True
    records = list(takewhile(lambda record: record.revision >= newest[0], crew.board.records()))
    if not records:
        return False
    digest = sha(newest[1].encode("utf-8", "surrogateescape"))
    return records[-1].revision > newest[0] or records[-1].sha256 == digest


def _record(crew: Crew) -> int:
    if not _is_of_crew(crew):
        raise _conflict_here(crew)
    with files.convert_os_errors():
        crew.paths.tx.mkdir(parents=True, exist_ok=True)
    recorded_mark.write_mark(crew.paths, board_history.newest_revision(crew.git) or 0)
    count = 0
    for _ in range(_MAX_BATCHES):
        recorded = recorder.record_batch(crew, packed=True)
        if not recorded:
            break
        count += recorded
    return count


def _push(crew: Crew, remote: SharedRemote) -> None:
    own = crew.git.find_commit(HISTORY_REF)
    if own is None or remote.list_refs(HISTORY_REF).get(HISTORY_REF) == own:
        return
    result = remote.call("push", *PUSH_OPTIONS, patterns=[f"{HISTORY_REF}:{HISTORY_REF}"])
    if result.code == 0:
        return
    # A former exporter was faster: its revisions are taken over at the next export.
    if remote.describe_failure(result)[0] is not PushFailure.MOVED:
        raise remote.explain(result, "liza doctor")


def _conflict_here(crew: Crew) -> HistoryConflict:
    newest = crew.git.find_commit(HISTORY_REF) or ""
    return HistoryConflict(
        f"{HISTORY_REF} of this clone has other revisions than this board: of another crew, or of a newer copy of the "
        "database; nothing is exported",
        f"git update-ref {HISTORY_REF}-{newest[:12]} {newest} && git update-ref -d {HISTORY_REF}",
        newest,
    )


def _conflict(remote: SharedRemote, newest: str) -> HistoryConflict:
    return HistoryConflict(
        f"{HISTORY_REF} of {remote.name} has other revisions than this board: of another crew, or of a newer copy of "
        "the database; nothing is exported",
        f"git push {remote.name} {newest[:12]}:{HISTORY_REF}-{newest[:12]} :{HISTORY_REF}",
        newest,
    )
