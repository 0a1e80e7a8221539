"""What every store of a board offers. Read this file first; verbs, supervisors, pictures and the API know only this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from uuid import UUID

from liza.board.archived_entries import ArchivedEntry, ArchiveFault
from liza.board.events import Watch
from liza.board.revisions import RevisionLine, RevisionRecord
from liza.board.rules.archiving import ArchiveTotals
from liza.board.rules.host_leases import AgentPlacement, HostTable
from liza.board.shared_records import SharedRecords
from liza.board.signals import Signal
from liza.board.text.document import Document
from liza.model.model import Clock, State, Task
from liza.model.value_classes import Mutable, Value


class Alert(Value):
    """A message for a person. ``kind`` is one word, ``message`` a sentence."""

    kind: str
    message: str
    time: datetime


class Restored(Value):
    """The restored board, and the path of the kept copy of the unreadable one; None if there was none."""

    state: State
    broken_copy: Path | None


class RestoredArchive(Value):
    """The archive files that got entries from the history, and where the damaged ones are kept.

    ``ids`` are those of all archived tasks, also of those that a person turned into comments.
    """

    names: tuple[str, ...] = ()
    copies: tuple[Path, ...] = ()
    ids: frozenset[str] = frozenset()


class Transaction(Mutable):
    """A change under the lock. The caller replaces ``state``; its value at the end is written."""

    before: State
    state: State
    document: Document
    """The text of ``before``, by entries."""
    task: str | None = None
    """The task that the journal names."""
    moved: Mapping[str, str] = {}
    """The entries of tasks that the change moves to the archive: id → text, in their order."""
    revision: int | None = None
    """Revision of the change; None until it is written, and if nothing changed."""


class Board(ABC):
    """The board of one crew. Only one thread at a time is in a transaction; the others wait."""

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def read(self) -> State:
        """Return the board with the effective settings. Raises what ``read_as_written`` raises."""

    @abstractmethod
    def read_as_written(self) -> State:
        """Return the board, its settings as they are written.

        Raises NoCrew, BoardUnreadable, BoardTooNew, BoardInconsistent, LockTimeout, BoardUnreachable.
        """

    @abstractmethod
    def read_text(self) -> str:
        """Return the text of the board, valid or not. Raises NoCrew, BoardUnreadable, BoardUnreachable."""

    @abstractmethod
    def unknown_config(self) -> tuple[str, ...]:
        """Return the keys of ``config:`` that are no setting."""

    @abstractmethod
    def take_alerts(self) -> list[Alert]:
        """Return the alerts of the repairs since the last call, and forget them. The journal has them too."""

    # ── revisions ────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def records(self) -> Iterator[RevisionRecord]:
        """Yield the committed revisions, newest first, as far back as they are kept."""

    @abstractmethod
    def texts(self, since: int = 0, base: tuple[int, str] | None = None) -> Iterator[tuple[RevisionLine, str]]:
        """Yield revisions with their texts, ascending, at least from ``since`` on.

        They are built on ``base``, a revision with its text, or on the newest whole text up to ``since``. A revision
        that cannot be rebuilt is left out.
        """

    @abstractmethod
    def last_good_text(self) -> str:
        """Return the newest text of the journal. Raises BoardInconsistent if it has none."""

    # ── archived tasks ───────────────────────────────────────────────────────────────────────────────────────────

    # These may also be asked inside a transaction.

    @abstractmethod
    def archived(self, ids: Container[str]) -> dict[str, ArchivedEntry]:
        """Return the last archived entry of each of these tasks. Raises BoardInconsistent."""

    @abstractmethod
    def archived_ids(self) -> list[str]:
        """Return the ids of the archived tasks. Raises BoardInconsistent."""

    @abstractmethod
    def archived_tasks(self) -> Iterator[Task]:
        """Yield the archived tasks that can be read, the last archived first."""

    @abstractmethod
    def find_merged(self, commits: Iterable[str]) -> tuple[Task, ...]:
        """Return the archived tasks with one of these merge commits. Raises BoardInconsistent."""

    @abstractmethod
    def count_archived(self, without: Iterable[str]) -> ArchiveTotals:
        """Return the totals of the archive without the tasks ``without``."""

    @abstractmethod
    def find_archive_damage(self, state: State) -> ArchiveFault | None:
        """Return why the archive cannot be read or lacks tasks that the board counts; None if all is well."""

    @abstractmethod
    def find_faulty_entries(self) -> Iterator[ArchiveFault]:
        """Yield the archived entries that cannot be read or are not closed. All entries are parsed."""

    @abstractmethod
    def read_archive(self) -> Mapping[str, bytes]:
        """Return the archive as files by name, as the history keeps them. Raises BoardInconsistent."""

    @abstractmethod
    def restore_archive(self, actor: str, recorded: Mapping[str, str]) -> RestoredArchive:
        """Write the entries that ``recorded``, the files of the history by name, has and that are nowhere now.

        An entry that a person turned into a comment is not lost. Raises Refused, BoardInconsistent, WriteFailed.
        """

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def transaction(self, actor: str, event: str, *, task: str | None = None) -> AbstractContextManager[Transaction]:
        """Write ``tx.state`` as the next revision when the block ends, or nothing if it raises. The block runs once.

        Raises BoardInconsistent if the change adds a violation, LockTimeout, and what ``read`` raises.
        """

    @abstractmethod
    def heartbeat(self, actor: str) -> AbstractContextManager[Transaction]:
        """Write ``tx.state`` without a new revision or a line in the journal, as lease renewals need it.

        ``actor`` renews the lease. Entries may not be added or removed. Raises what ``transaction`` raises.
        """

    @abstractmethod
    def create(self, text: str, above: int = 0) -> None:
        """Write the first board of a crew. ``above`` is the highest revision of an existing history.

        Raises Refused if there is a board, BoardInconsistent if ``text`` violates an invariant.
        """

    @abstractmethod
    def replace_text(self, actor: str, text: str, event: str = "edit") -> None:
        """Replace the whole text, as ``edit`` does. It is refused if it adds a violation.

        Raises BoardInconsistent, LockTimeout.
        """

    @abstractmethod
    def transform_text(self, actor: str, rewritten: Callable[[str], str]) -> None:
        """Replace the text by ``rewritten(text)``, under the lock. If ``rewritten`` raises, nothing is written."""

    @abstractmethod
    def restore(self, actor: str, good: Callable[[], str]) -> Restored | None:
        """Write ``good()`` if the board is missing, unreadable or truncated; None if it is valid."""

    # ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def signals(self) -> Mapping[str, Signal]:
        """Return the signals that are set, by name, the strongest first."""

    @abstractmethod
    def raise_signal(self, name: str, text: str = "") -> None:
        """Set a signal with ``text`` as the reason; replace an existing one. Raises UsageError for an unknown name."""

    @abstractmethod
    def clear_signal(self, name: str) -> bool:
        """Remove a signal; False if it is not set. Raises UsageError for an unknown name."""

    @abstractmethod
    def lock_signals(self, *, is_stop: bool = False) -> AbstractContextManager[bool]:
        """Hold the lock for a change that depends on which signals are set; yield whether it is held.

        ``is_stop``: the change sets a signal. It is made without the lock if that cannot be taken: no process may keep
        a crew from being stopped. Otherwise raises LockTimeout.
        """

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def pages(self) -> Mapping[str, str]:
        """Return the documents below `.liza/specs` that hosts share, by file name; none if the board is in files."""

    @abstractmethod
    def write_page(self, name: str, text: str) -> None:
        """Save a document for other hosts, in the open transaction if there is one. Nothing to do for files."""

    # ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def watch(self, extra_dirs: Iterable[Path] = ()) -> Watch:
        """Watch the board, the signals and the files of ``extra_dirs``, which are created if missing.

        Returns when the watches are active.
        """

    # ── hosts ────────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def hosts(self) -> HostTable | None:
        """Return the hosts of the crew, with their agents and duties; None for a crew on one host.

        Raises BoardUnavailable.
        """

    @abstractmethod
    def acts_for(self, host: str, incarnation: UUID) -> None:
        """Refuse later changes of this object with HostFenced, unless this incarnation of the host has its lease."""

    @abstractmethod
    def take_duty(self, name: str, above: int = 0) -> int | None:
        """Return the term in which the host of ``acts_for`` has a duty of the whole crew, such as ``merger``.

        A new holder has a higher term; it is above ``above``. None if another host has it, or this one has no lease.
        0 for a crew on one host.
        """

    @abstractmethod
    def held_agents(self) -> Mapping[str, AgentPlacement]:
        """Return the agents that hosts hold: a supervisor or a session of theirs may run there.

        Empty for a board in files, which has one host.
        """

    @abstractmethod
    def lost_runs(self) -> Container[str]:
        """Return the runs whose session ended because their host was lost. Empty for a board in files."""

    @abstractmethod
    def begin_session(self, run: str) -> None:
        """Tell the other hosts that the session of a run may live from now on. Raises BoardUnavailable."""

    @abstractmethod
    def end_session(self, run: str) -> None:
        """Tell the other hosts that the session of a run is over. Raises BoardUnavailable."""

    def clock(self, system: Clock) -> Clock:
        """Return the clock of the crew: that of the server which has the board, else ``system``."""
        return system

    @abstractmethod
    def forget_host(self, name: str, incarnation: UUID) -> None:
        """Remove a host that a person knows to be dead: its agents and duties are free at once."""

    # ── beside the board ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def shared(self) -> SharedRecords | None:
        """What the hosts share beside the board; None for a board in files: the crew has one host."""
        return None

    # ── what only files have ─────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def require_files(self, action: str) -> None:
        """Raise Refused if the board is not in files. ``action``: what needs them, as `liza lock`."""
