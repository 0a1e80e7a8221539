"""How far the integration branch is ahead of a person's branch, and the command that lands it. Pure."""

from __future__ import annotations

from liza.model.value_classes import Value
from liza.text.counts import count_noun


class CommitsAhead(Value):
    """``commits`` of ``integration`` have work that ``branch`` does not have; it has ``own`` commits that integration
    does not have. ``request``: URL of the open pull request to ``branch``; empty without one.
    """

    integration: str
    branch: str
    commits: int
    own: int = 0
    request: str = ""

    @property
    def next(self) -> str:
        """Command that lands them; without any, the commands that end or continue the crew."""
        sync = "liza sync && " if self.own else ""
        if self.commits:
            return f"{sync}liza land {'--pr' if self.request else '--merge'}"
        return f"liza down --purge, or go on: {sync}liza task add"

    @property
    def summary(self) -> str:
        if not self.commits:
            return f"{self.branch} has all of {self.integration}"
        request = f" (pull request {self.request})" if self.request else ""
        return f"{self.integration} is {count_noun(self.commits, 'commit')} ahead of {self.branch}{request}"
