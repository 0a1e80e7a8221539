"""What a commit at ``refs/liza/merge-term`` says: whose term it is, and what was published with it. Pure.

Its parent is the commit that it replaced: the ref has the history of all publications of a crew on several hosts.
"""

from __future__ import annotations

import re

from liza.model.value_classes import Value

TERM_REF = "refs/liza/merge-term"
_FIELD = re.compile(r"(?m)^(Term|Host|Branch|Commit|Tasks): (.*)$")


class Publication(Value):
    """The term of a merger and its host. ``commit``: what was published to ``branch`` with it, for these ``tasks``;
    empty if the term began with it."""

    term: int
    host: str
    branch: str = ""
    commit: str = ""
    tasks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        if not self.commit:
            return f"Merge term {self.term} begins on {self.host}"
        return f"Merge term {self.term}: {self.branch} is {self.commit[:10]}"

    def format(self) -> str:
        """Return the message of the commit."""
        fields = {"Term": f"{self.term}", "Host": self.host}
        if self.commit:
            fields |= {"Branch": self.branch, "Commit": self.commit, "Tasks": " ".join(self.tasks)}
        return "\n".join([self.title, "", *(f"{name}: {value}" for name, value in fields.items())]) + "\n"


def parse_publication(message: str) -> Publication | None:
    """Return what a message says; None if a person or another program wrote it."""
    fields = {match[1]: match[2].strip() for match in _FIELD.finditer(message)}
    if not fields.get("Term", "").isdecimal() or not fields.get("Host"):
        return None
    return Publication(
        int(fields["Term"]),
        fields["Host"],
        fields.get("Branch", ""),
        fields.get("Commit", ""),
        tuple(fields.get("Tasks", "").split()),
    )


def branch_line(branch: str) -> str:
    """Return the line of a message that published something to ``branch``."""
    return f"Branch: {branch}"


def commit_line(commit: str) -> str:
    """Return the line of a message that published ``commit``."""
    return f"Commit: {commit}"
