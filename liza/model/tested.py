"""What a commit may be called: tested, "tested, but …" with what a person allowed, or untested. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liza.model.gates import GateFinding, GateFindingKind
from liza.model.model import Task
from liza.model.value_classes import Value, replace


class HowTested(Value):
    """How a commit was tested: ``tested`` and ``remarks`` as ``Task`` has them.

    ``untested``: why its gates say nothing about it, if a gate applied. ``gates``: the digest of the gates that it
    passed, if that was recorded.
    """

    tested: bool
    remarks: tuple[str, ...] = ()
    untested: GateFinding | None = None
    gates: str = ""

    @property
    def was_run(self) -> bool:
        """Whether tests ran that say something about the commit."""
        return self.tested or bool(self.remarks)

    def with_remarks_of(self, earlier: HowTested | None) -> HowTested:
        """Return the same with the remarks of an earlier run of the same commit: they stay true of it."""
        remarks = tuple(dict.fromkeys((*(earlier.remarks if earlier else ()), *self.remarks)))
        return replace(self, tested=self.tested and not remarks, remarks=remarks)


NO_GATE_APPLIED = HowTested(False)


def judge_commit(findings: Iterable[GateFinding]) -> HowTested:
    """Judge a commit by what was observed while its gates ran. Whether they are green is not judged here."""
    observed = tuple(dict.fromkeys(findings))
    untested = next((finding for finding in observed if finding.kind is GateFindingKind.UNTESTED), None)
    remarks = tuple(finding.text for finding in observed if finding.kind is GateFindingKind.REMARK)
    return HowTested(untested is None and not remarks, remarks, untested)


def describe_tested(tested: bool | None, remarks: Sequence[str]) -> str:
    """Return the word for a merge, with what a person allowed."""
    if remarks:
        return f"tested, but {'; '.join(remarks)}"
    return "tested" if tested else "untested"


def is_untested(task: Task) -> bool:
    """Return whether the task was merged untested. Remarks do not make a merge untested."""
    return task.tested is False and not task.remarks
