"""What a tool does, and the facts about the session that it is judged with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from liza.rules.guards.word_matching import ANY, FILES, MANY, MARK, is_known

SHELL, READ, WRITE, FETCH, OTHER = "shell", "read", "write", "fetch", "other"
OWN, CREW, ELSEWHERE, UNKNOWN = "own", "crew", "elsewhere", "unknown"
AREAS = (OWN, CREW, ELSEWHERE, UNKNOWN)
"""Where a command runs: in the session's worktree, in another part of the repository, outside of it, or unknown."""


class Act:
    """One thing that a tool does.

    ``tool``: the tool of the vocabulary. ``words``: the command, for a shell; ``target``: the path or address. A path
    is absolute if it is known. ``is_tree``: everything below the path is removed or moved with it. ``area``: where a
    command runs. ``is_code``: the words are from the text of a program in another language, which is not understood.
    ``unjudged``: why the act cannot be judged.
    """

    __slots__ = ("area", "is_code", "is_tree", "target", "tool", "unjudged", "words")

    def __init__(
        self,
        tool: str,
        words: Sequence[str] = (),
        target: str = "",
        is_tree: bool = False,
        area: str = OWN,
        unjudged: str = "",
        is_code: bool = False,
    ) -> None:
        self.tool, self.words, self.target, self.area = tool, tuple(words), target, area
        self.is_tree, self.unjudged, self.is_code = is_tree, unjudged, is_code

    @property
    def key(self) -> tuple[object, ...]:
        """What the verdict on it depends on."""
        return self.tool, self.words, self.target, self.area, self.is_tree, self.is_code, self.unjudged

    @property
    def text(self) -> str:
        """The act as a short text for people; ``…`` stands for what is not known."""
        text = " ".join(word.removeprefix(MARK) for word in self.words) if self.words else f"{self.tool} {self.target}"
        text = text.replace(ANY, "…").replace(MANY, "…").replace(FILES, "*")
        return text if len(text) <= 200 else text[:199] + "…"


class GuardFacts:
    """The session for which a tool is judged. Paths are absolute and contain no links; empty if unknown.

    ``directory`` is where the tool starts, ``state`` where Liza keeps the state of the user. ``real`` resolves links,
    ``exists`` tells whether a path exists.
    ``variables`` are those of the session that a command may name.
    """

    __slots__ = (
        "branch",
        "directory",
        "exists",
        "home",
        "real",
        "role",
        "root",
        "slots",
        "state",
        "task",
        "variables",
        "worktree",
    )

    def __init__(
        self,
        role: str = "",
        task: str = "",
        branch: str = "",
        root: str = "",
        slots: str = "",
        worktree: str = "",
        home: str = "",
        directory: str = "",
        variables: Mapping[str, str] | None = None,
        real: Callable[[str], str] = str,
        exists: Callable[[str], bool] = lambda path: False,
        state: str = "",
    ) -> None:
        self.state = state
        self.role, self.task, self.branch = role, task, branch
        self.root, self.slots, self.worktree, self.home = root, slots, worktree, home
        self.directory = directory or worktree or root
        self.variables, self.real, self.exists = variables or {}, real, exists

    def area_of(self, path: str) -> str:
        """Return which area a directory is in."""
        if not path or not is_known(path) or not path.startswith("/"):
            return UNKNOWN
        path = self.real(path)
        if self.worktree and is_below(path, self.worktree):
            return OWN
        return CREW if any(top and is_below(path, top) for top in (self.root, self.slots)) else ELSEWHERE


def is_below(path: str, top: str) -> bool:
    """Return whether ``path`` is ``top`` or inside it."""
    return path == top or path.startswith(top.rstrip("/") + "/")


def join_path(directory: str, path: str) -> str:
    """Return ``path`` seen from ``directory``, without ``.`` and ``..``; it begins with ANY if that is unknown."""
    if path[:1] in (ANY, MANY):
        path = ANY + path[1:]
    elif not path.startswith("/"):
        path = f"{directory or ANY}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and is_known(parts[-1]):
            parts.pop()
        elif part == ".." and parts:
            parts.append(ANY)
        elif part not in ("", ".", ".."):
            parts.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(parts)
