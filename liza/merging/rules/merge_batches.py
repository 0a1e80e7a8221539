"""What the board records about a batch: a chain of candidates that is tested and published at its tip. Pure.

A task that is merged alone is a batch of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liza.merging.rules import merge_rules
from liza.model import targets
from liza.model.model import MergeInProgress, State, Task
from liza.model.transitions import Invocation
from liza.model.value_classes import Value, replace


class Member(Value):
    """A task of a batch, and its candidate."""

    task: Task
    merging: MergeInProgress


class Batch(Value):
    """The members of a batch in the order of the chain, at least one, and the ``branch`` that it is published to."""

    members: tuple[Member, ...]
    branch: str

    @property
    def expected(self) -> str:
        """The tip of the branch that the batch replaces."""
        return self.members[0].merging.expected

    @property
    def tip(self) -> str:
        """The commit that is published."""
        return tip_of(self.members[-1].merging)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(member.task for member in self.members)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(member.task.id for member in self.members)

    @property
    def title(self) -> str:
        """The task, or the number of tasks and the first one."""
        first = self.members[0].task.id
        return first if len(self.members) == 1 else f"{len(self.members)} tasks from {first} on"

    def prefix(self, length: int) -> Batch:
        """Return the first members, which are published with the candidate of the last of them."""
        members = self.members[:length]
        tip = None if length == 1 else members[-1].merging.candidate
        return Batch(tuple(Member(member.task, replace(member.merging, tip=tip)) for member in members), self.branch)


def tip_of(merging: MergeInProgress) -> str:
    """Return the commit that is tested and published for this candidate."""
    return merging.tip or merging.candidate


def find_batches(state: State) -> tuple[Batch, ...]:
    """Return the batches of the tasks that have a candidate, each in the order of its chain.

    Tasks with one tip whose candidates are no complete chain are not a batch: each is returned alone, with its own
    candidate, which is not the tip and so was never tested.
    """
    groups: dict[tuple[str, str], list[Member]] = {}
    for task in state.tasks:
        if task.merging is not None:
            group = (targets.target_branch(state, task), tip_of(task.merging))
            groups.setdefault(group, []).append(Member(task, task.merging))
    batches: list[Batch] = []
    for (branch, tip), members in groups.items():
        chain = _order_chain(members, tip)
        batches += [Batch(chain, branch)] if chain else [Batch((member,), branch) for member in members]
    return tuple(batches)


def _order_chain(members: Sequence[Member], tip: str) -> tuple[Member, ...] | None:
    by_candidate = {member.merging.candidate: member for member in members}
    chain: list[Member] = []
    commit = tip
    while commit in by_candidate:
        member = by_candidate.pop(commit)
        chain.append(member)
        commit = member.merging.expected
    return tuple(reversed(chain)) if len(chain) == len(members) else None


def begin_batch(state: State, batch: Batch) -> State:
    """Record the candidates of a batch before its tests run. Raises Refused."""
    for member in batch.members:
        state = merge_rules.begin_merge(state, member.task.id, member.merging)
    return state


class HowTested(Value):
    """How a batch was tested: ``tested`` and ``remarks`` as ``Task`` has them, and the digest of its gates."""

    tested: bool
    remarks: tuple[str, ...] = ()
    gates: str = ""


def record_tested(state: State, published: Batch, dropped: Iterable[str], record: HowTested) -> State:
    """Record that ``published`` may be published, and remove the candidates of the tasks ``dropped``.

    Raises Refused.
    """
    for member in published.members:
        merging = replace(member.merging, tested=record.tested, remarks=record.remarks, gates=record.gates)
        state = merge_rules.begin_merge(state, member.task.id, merging)
    return drop_candidates(state, dropped)


def drop_candidates(state: State, tasks: Iterable[str]) -> State:
    """Remove the candidates of these tasks, which stay APPROVED. Raises Refused."""
    for task_id in tasks:
        state = merge_rules.drop_candidate(state, task_id)
    return state


def record_merged(state: State, batch: Batch, invocation: Invocation) -> State:
    """Record that integration contains the batch: its tasks are MERGED, each as its own candidate. Raises Refused."""
    for member in batch.members:
        own = Invocation(now=invocation.now, by=invocation.by, run=invocation.run, commit=member.merging.candidate)
        state = merge_rules.record_merge(state, member.task.id, own, member.merging)
    return state


def wait_for_files(state: State, batch: Batch, files: tuple[str, ...]) -> State:
    """Record that changed files of a person's checkout block the tested batch. Raises Refused."""
    for task_id in batch.ids:
        state = merge_rules.wait_for_files(state, task_id, files)
    return state
