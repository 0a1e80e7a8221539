"""What a tool does, and the facts about the session that it is judged with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from liza.model.value_classes import Value, field

SHELL, READ, WRITE, FETCH, OTHER = "shell", "read", "write", "fetch", "other"
OWN, CREW, ELSEWHERE, UNKNOWN = "own", "crew", "elsewhere", "unknown"
AREAS = (OWN, CREW, ELSEWHERE, UNKNOWN)
"""Where a command runs: in the session's worktree, in another part of the repository, outside of it, or unknown."""
MARK = "\uf8f5"  # begins a word that Liza adds to a command, and is removed from words of agents; ``@`` in patterns


class CannotJudge(Exception):
    """The tool cannot be judged: its script cannot be parsed, or is too large. The text is the reason."""


class ShellCommand(Value):
    """A command of a script, its words as they are written, without quotes. ``assignments``: ``NAME=VALUE`` before it.
    ``outputs``: files that redirections write. ``scope``: the subshells around it. ``is_fed``: it reads a pipe or a
    here-document."""

    words: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    scope: tuple[int, ...] = ()
    is_fed: bool = False


class Act(Value):
    """One thing that a tool of the vocabulary does. ``words``: the command, for a shell, and ``area`` where it runs;
    ``target``: the absolute path, or the address. ``is_tree``: what is below the path is removed or moved with it."""

    tool: str
    words: tuple[str, ...] = ()
    target: str = ""
    is_tree: bool = False
    area: str = OWN

    @property
    def text(self) -> str:
        """The act as a short text for people."""
        text = " ".join(word for word in self.words if word[:1] != MARK) or f"{self.tool} {self.target}"
        return text if len(text) <= 200 else text[:199] + "…"


class GuardFacts(Value):
    """The session for which a tool is judged. Paths are absolute and contain no links; empty if unknown.

    ``directory`` is where the tool starts, ``state`` where Liza keeps the state of the user. ``variables`` are those of
    the session that a path may name. ``real`` resolves links, ``exists`` tells whether a path exists.
    """

    role: str = ""
    branch: str = ""
    root: str = ""
    slots: str = ""
    worktree: str = ""
    home: str = ""
    state: str = ""
    directory: str = ""
    is_confined: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    real: Callable[[str], str] = str
    exists: Callable[[str], bool] = lambda path: False

    def area_of(self, path: str) -> str:
        """Return which area a directory is in."""
        if not path:
            return UNKNOWN
        path = self.real(path)
        if self.worktree and is_below(path, self.worktree):
            return OWN
        return CREW if any(top and is_below(path, top) for top in (self.root, self.slots)) else ELSEWHERE

    def join(self, directory: str, path: str) -> str:
        """Return ``path`` seen from ``directory``, without ``~``, ``.`` and ``..``."""
        if self.home and (path == "~" or path.startswith("~/")):
            path = self.home + path[1:]
        parts: list[str] = []
        for part in (path if path.startswith("/") else f"{directory}/{path}").split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return "/" + "/".join(parts)


def is_below(path: str, top: str) -> bool:
    """Return whether ``path`` is ``top`` or inside it."""
    return path == top or path.startswith(top.rstrip("/") + "/")
