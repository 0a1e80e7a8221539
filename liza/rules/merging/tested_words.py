"""The three words for how a merge was tested: tested, tested but…, untested. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def describe_tested(tested: bool | None, remarks: Sequence[str]) -> str:
    """Return the word for a merge, with what a person allowed."""
    if remarks:
        return f"tested, but {'; '.join(remarks)}"
    return "tested" if tested else "untested"
