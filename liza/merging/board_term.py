"""Which host merges for a crew on several hosts: a duty on the board, with a term that grows with each new holder."""

from __future__ import annotations

from liza.board.contract import Board
from liza.crew.crew import Crew
from liza.git.merge_term import MergeTerm
from liza.hosts import host_start
from liza.model.errors import Refused, UsageError
from liza.model.value_classes import Value

DUTY = "merger"


class MergerReplaced(Refused):
    """Another host merges now. Nothing was published. Exit code 1."""


class BoardTerm(Value):
    """The term of this host, as its board has it."""

    board: Board
    host: str
    number: int

    def is_held(self) -> bool:
        """Return whether this host still has the duty in this term. Raises BoardUnavailable."""
        return self.board.take_duty(DUTY) == self.number

    def raised_above(self, number: int) -> BoardTerm | None:
        """Return the term of this host with a number above ``number``; None if another host has the duty. Raises
        BoardUnavailable."""
        raised = self.board.take_duty(DUTY, above=number)
        return None if raised is None else BoardTerm(self.board, self.host, raised)


def take_term(crew: Crew) -> MergeTerm:
    """Return the term of this host. A host takes the duty if no other host has it, and keeps it as long as its lease.

    From then on the board refuses changes of this process if the host has no lease. Raises MergerReplaced if another
    host merges, or this clone is no host, HostFenced, BoardUnavailable.
    """
    if crew.merge_term is not None:
        return crew.merge_term
    try:
        host_start.require_host_address(crew.paths)
    except UsageError as error:
        raise MergerReplaced(f"nothing is merged here: {error.message}", error.hint) from error
    lease = host_start.require_host(crew.paths)
    crew.board.acts_for(lease.host, lease.incarnation)
    number = crew.board.take_duty(DUTY)
    if number is None:
        other = find_merger(crew)
        where = "another host" if other is None else f"the host {other}"
        raise MergerReplaced(f"{where} merges for this crew: this host merges nothing", "liza host list")
    return BoardTerm(crew.board, lease.host, number)


def find_merger(crew: Crew) -> str | None:
    """Return the host that has the duty to merge; None if no host has it, and on one host. Raises BoardUnavailable."""
    hosts = crew.board.hosts() if crew.remote_name else None
    duties = () if hosts is None else [duty for duty in hosts.duties if duty.name == DUTY and hosts.is_held(duty)]
    return next((duty.host for duty in duties), None)


def merges_elsewhere(crew: Crew) -> bool:
    """Return whether another host has the duty to merge. Raises BoardUnavailable, UsageError."""
    merger = find_merger(crew)
    return merger is not None and merger != host_start.require_host_address(crew.paths).host
