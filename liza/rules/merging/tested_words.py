"""The three words for how a merge was tested: tested, tested but…, untested. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liza.rules.model import Task


def describe_tested(tested: bool | None, remarks: Sequence[str]) -> str:
    """Return the word for a merge, with what a person allowed."""
    if remarks:
        return f"tested, but {'; '.join(remarks)}"
    return "tested" if tested else "untested"


def is_untested(task: Task) -> bool:
    """Return whether the task was merged untested. Remarks do not make a merge untested."""
    return task.tested is False and not task.remarks
