"""What a board in files and one in PostgreSQL do alike."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from liza.board import new_violations, revision_texts
from liza.board.contract import Board
from liza.board.revisions import RevisionLine
from liza.board.text import changes
from liza.board.text.document import Document, read_document
from liza.board.text.values import check_revision
from liza.model.errors import BoardInconsistent
from liza.model.model import State, Violation
from liza.model.paths import Paths
from liza.system import files


class StoredBoard(Board):
    """A board with its journal. Only one thread at a time is in a transaction; the others wait."""

    def __init__(self, paths: Paths, trusted: Callable[[State], State]) -> None:
        """``trusted`` replaces the settings of a board that was read by the effective ones; see ``rules.settings``."""
        self.paths = paths
        self._with_effective_settings = trusted
        self._owner: int | None = None
        self._thread_lock = threading.Lock()

    def read(self) -> State:
        return self._with_effective_settings(self.read_as_written())

    @abstractmethod
    def _lines(self) -> Iterator[RevisionLine]:
        """Yield the committed revisions with their changes, newest first."""

    def texts(self, since: int = 0, base: tuple[int, str] | None = None) -> Iterator[tuple[RevisionLine, str]]:
        return revision_texts.rebuild_texts(self._lines(), since, base)

    def last_good_text(self) -> str:
        newest = revision_texts.newest_text(self._lines)
        if newest is None:
            raise BoardInconsistent("no earlier board is kept in the journal", "git log -p liza/blackboard")
        return newest[1]

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """Let one thread at a time use this object. Raises RuntimeError if this thread already does."""
        if self._owner == threading.get_ident():
            raise RuntimeError("a transaction inside a transaction")
        with self._thread_lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    @files.convert_os_errors()
    def _make_directories(self) -> None:
        for directory in (self.paths.liza, self.paths.tx, self.paths.locks):
            directory.mkdir(parents=True, exist_ok=True)


def change_board(document: Document, before: State, after: State, revision: int) -> Document:
    """Return the document with the state ``after`` as a revision.

    Raises BoardInconsistent if the state has a violation that ``before`` has not.
    """
    wanted = msgspec.structs.replace(after, version=document.state.version, revision=revision)
    _refuse_violations(new_violations.find_added(before, wanted))
    return changes.change_document(document, wanted)


def begin_board(text: str, revision: int) -> Document:
    """Return the first document of a crew as a revision. Raises BoardUnreadable, BoardInconsistent if it has a
    violation."""
    first = read_document(text)
    check_revision(revision)
    if first.state.revision != revision:
        first = changes.change_document(first, msgspec.structs.replace(first.state, revision=revision))
    _refuse_violations(new_violations.find_all(first.state))
    return first


def _refuse_violations(violations: tuple[Violation, ...]) -> None:
    """Raise BoardInconsistent if there is a violation."""
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise BoardInconsistent(f"{violations[0]}{more}; nothing was written", "liza validate")
