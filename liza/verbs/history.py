"""history: what happened to the board, a line a revision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from liza.board import revision_journal
from liza.board.revision_journal import RevisionRecord
from liza.board.store import format_subject as subject
from liza.crew.crew import Crew
from liza.crew.recovery.recorder import record_if_unsupervised
from liza.repo import board_history as recorded
from liza.rules.errors import LizaError
from liza.rules.paths import HISTORY_REF
from liza.rules.paths import check_task_id as checked_id
from liza.rules.tasks import claims
from liza.verbs.change_stream import watch_changes


def history(crew: Crew, task_id: str | None, limit: int, patch: bool = False) -> list[dict[str, Any]]:
    """The newest ``limit`` revisions, newest first, of one task or of all; the journal tells what is not yet in git.

    Raises UnknownId, GitFailed.
    """
    if task_id is not None:
        claims.get_task(crew.board.read(), checked_id(task_id))
    # It is a reader: what cannot be recorded now, on a full disk for example, is told from the journal.
    with suppress(LizaError, OSError):
        record_if_unsupervised(crew)
    entries = recorded.list_revisions(crew.git, task_id, limit)
    newest = recorded.list_revisions(crew.git, None, 1)
    tip = newest[0].revision if newest else 0
    waiting = [_unrecorded_row(one) for one in _newer_records(crew, task_id, tip)]
    told = [_recorded_row(crew, one, patch) for one in entries]
    return list(islice((*waiting, *told), limit))


def follow_history(crew: Crew, task_id: str | None, known: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The known revisions, oldest first, and then each new one as it comes."""
    yield from reversed(known)
    seen = known[0]["revision"] if known else 0
    for _ in watch_changes(crew):
        for one in reversed(_newer_records(crew, task_id, seen)):
            seen = one.revision
            yield _unrecorded_row(one)


def _newer_records(crew: Crew, task_id: str | None, revision: int) -> list[RevisionRecord]:
    """The journal's entries after ``revision``, newest first."""
    found = []
    for one in revision_journal.iter_newest_first(crew.paths.journal):
        if one.revision <= revision:
            break
        if task_id is None or one.task == task_id:
            found.append(one)
    return found


def _unrecorded_row(one: RevisionRecord) -> dict[str, Any]:
    return {
        "revision": one.revision,
        "time": one.time,
        "subject": subject(one),
        "by": one.actor,
        "commit": None,
        "patch": one.diff,
        "alerts": list(one.alerts),
    }


def _recorded_row(crew: Crew, one: recorded.Revision, patch: bool) -> dict[str, Any]:
    shown = crew.git.out("show", "--no-color", "--no-ext-diff", "--format=", one.commit) if patch else None
    return {
        "revision": one.revision,
        "time": f"{one.time:%Y-%m-%dT%H:%M:%SZ}",
        "subject": one.subject,
        "by": one.author,
        "commit": one.commit,
        "patch": shown,
        "alerts": [],
    }


__all__ = ["HISTORY_REF", "follow_history", "history"]
