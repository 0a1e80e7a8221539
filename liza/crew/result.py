"""What a verb answers: the same shape for people, for agents and for `--json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from liza.rules.model import State
from liza.rules.reports.narration import find_news


@dataclass(frozen=True)
class Result:
    """``result`` is ``changed`` or ``unchanged``; ``next`` is one command, or what happens now; ``told`` is what
    happened, as a person reads it."""

    result: str
    task: str | None = None
    status: str | None = None
    next: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        said = {"result": self.result, "task": self.task, "status": self.status, "next": self.next}
        return {**said, **self.details}


def make_result(before: State, after: State, task: str | None, next_step: str, **more: Any) -> Result:
    """The answer of a verb that took the board from ``before`` to ``after``."""
    status = found.status.value if task and (found := after.task(task)) else None
    told = "\n".join(one.text for one in find_news(before, after))
    return Result("unchanged" if after == before else "changed", task, status, next_step, more, told)
