"""Return type of verbs: the same for people, for agents and for `--json`."""

from __future__ import annotations

from typing import Any

from liza.model.model import State
from liza.model.narration import find_news
from liza.model.value_classes import Value, field
from liza.text.redaction import describe_secrets


class Result(Value):
    """``result`` is ``changed`` or ``unchanged``; ``next`` is one command, or what happens now; ``message`` tells a
    person what happened, ``remarks`` what else a person should know of it."""

    result: str
    task: str | None = None
    status: str | None = None
    next: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        common = {"result": self.result, "task": self.task, "status": self.status, "next": self.next}
        return {**common, **self.details, **({"remarks": self.remarks} if self.remarks else {})}


def make_result(before: State, after: State, task: str | None, next_step: str, **more: Any) -> Result:
    """Build the result of a verb that changed the board from ``before`` to ``after``."""
    status = entry.status.value if task and (entry := after.task(task)) else None
    message = "\n".join(news.text for news in find_news(before, after))
    remarks = describe_secrets(before, after)
    return Result("unchanged" if after == before else "changed", task, status, next_step, more, message, remarks)
