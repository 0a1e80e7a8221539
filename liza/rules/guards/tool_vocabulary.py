"""One vocabulary for the tools of all programs: shell, read, write, fetch, mcp:SERVER/TOOL, other:NAME."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from liza.rules.guards.acts import FETCH, READ, SHELL, WRITE

RAW_INPUT = "_input"
"""Key of an input that is no object."""
TYPED = "typed"
"""Text that is typed into a command that runs: it is not a script, so only words in it are compared."""
DIRECTORY_KEYS = ("workdir", "cwd", "dir_path", "working_directory", "directory", "workingDirectory")
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("file_path", "filePath", "path", "absolute_path", "notebook_path", "target_file", "filename", "uri")
_CONTENT_KEYS = (
    "content", "contents", "new_string", "newString", "new_str", "file_text", "edits", "patch", "diff", "text",
    "new_source", "replace", "insert",
)  # fmt: skip
_SOURCE_KEYS = ("source", "src", "from", "old_path", "oldPath", "source_path", "sourcePath")
_TARGET_KEYS = (
    "destination", "dest", "dst", "target", "to", "new_path", "newPath", "destination_path", "destinationPath",
    "target_path", "relative_path", "relativePath", "paths", "files", "file", "filepath",
)  # fmt: skip
_REMOVES = ("delete", "remove", "move", "rename", "rmdir")
_CHANGES = (
    *_REMOVES, "write", "create", "copy", "edit", "append", "replace", "insert", "patch", "mkdir", "make_dir",
)  # fmt: skip
_GIT_PATH_KEYS = ("repo_path", "repoPath", "repository_path", "repositoryPath", "repository", "repo", "path")
_GIT_WORD_KEYS = (
    "mode", "operation", "action", "subcommand", "args", "branch_name", "branchName", "branch", "branchOrPath",
    "target", "revision", "commit", "ref", "name", "tagName",
)  # fmt: skip
_REMOTE = ("github", "gitlab", "bitbucket", "gitea")
"""Servers whose paths are those of a repository elsewhere."""


class NamedTool:
    """A tool in the vocabulary. ``texts`` are commands, paths, or addresses. ``words``: a command that is given as
    separate words. ``patch``: a patch whose paths are written. ``directory``: where it starts; empty if not given.
    ``is_tree``: what is below its paths is removed or moved with them. ``git``: the git command that it stands for."""

    __slots__ = ("directory", "git", "is_tree", "kind", "patch", "texts", "words")

    def __init__(
        self,
        kind: str,
        texts: Sequence[str] = (),
        words: Sequence[str] = (),
        patch: str = "",
        directory: str = "",
        is_tree: bool = False,
        git: Sequence[str] = (),
    ) -> None:
        self.is_tree, self.git = is_tree, git
        self.kind, self.texts, self.words, self.patch, self.directory = kind, texts, words, patch, directory


def name_tool(name: str, tools: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tool's name in the vocabulary. ``tools`` is the section of that name in ``guards.toml``."""
    row = tools.get(name.casefold())
    if row is not None and "git" not in row:
        return str(row.get("is", SHELL))
    if name.startswith("mcp__"):
        server, _, tool = name[5:].partition("__")
        return f"mcp:{server}/{tool}"
    if name[:4].casefold() == "mcp:":
        rest = name[4:].strip()
        return f"mcp:{rest}" if "/" in rest else f"mcp:*/{rest}"
    return f"other:{name}"


def read_tool(name: str, given: object, tools: Mapping[str, Mapping[str, Any]]) -> NamedTool:
    """Return what a tool does with its input.

    A tool that is not in the table is taken for a shell if it has a command, and for a write if it has a path and a
    content. Raises ValueError if the input of a shell has no command.
    """
    kind = name_tool(name, tools)
    if isinstance(given, dict) and list(given) == [RAW_INPUT]:
        given = given[RAW_INPUT]
    data = _as_object(given)
    row = tools.get(name.casefold(), {})
    keys = row.get("key", ())
    directory = next((value for key in DIRECTORY_KEYS if isinstance(value := data.get(key), str)), "")
    if kind == SHELL:
        return _shell(name, given, data, keys or _COMMAND_KEYS, directory)
    if kind in (READ, WRITE, FETCH, TYPED):
        texts = _texts(data, keys or _PATH_KEYS)
        patch = "\n".join(_texts(data, row.get("patch", ())))
        if not patch and row.get("patch") and isinstance(given, str):
            patch = given
        if row.get("unless") and data.get(row["unless"][0]) in row["unless"][1:]:
            kind = READ
        is_tree = kind == WRITE and any(verb in name.casefold() for verb in _REMOVES)
        return NamedTool(kind, texts, patch=patch, directory=directory, is_tree=is_tree)
    if any(isinstance(data.get(key), str | list) for key in _COMMAND_KEYS[:2]):
        return _shell(name, given, data, _COMMAND_KEYS[:2], directory)
    git = find_git_command(kind, tools)
    if git:
        directory = directory or next((data[key] for key in _GIT_PATH_KEYS if isinstance(data.get(key), str)), "")
        return NamedTool(kind, directory=directory.removeprefix("file://"), git=[*git, *_git_words(data)])
    return _other(kind, data, directory)


def find_git_command(kind: str, tools: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """Return the git command that a tool of a server stands for, such as ``mcp:git/git_commit``; empty if none.

    The row whose name ends the tool's name tells it: programs put the name of the server before it.
    """
    name = kind.replace("/", "_").replace("-", "_").casefold()
    for suffix, row in tools.items():
        if "git" in row and name.endswith(suffix) and not name[: -len(suffix)][-1:].isalnum():
            return list(row["git"])
    return ()


def _git_words(data: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a git command in the input of its tool; an operation such as ``list`` is an option."""
    words = _texts(data, _GIT_WORD_KEYS)
    return [f"--{word}" if word in ("list", "show", "delete", "abort", "continue") else word for word in words]


def _other(kind: str, data: Mapping[str, Any], directory: str) -> NamedTool:
    """Return what a tool does that is not in the table: it writes what it names if its name or its input says so."""
    name = kind.casefold()
    tool = name.rpartition("/")[2]
    if any(server in name[: len(name) - len(tool)] for server in _REMOTE):
        return NamedTool(kind)
    paths = _texts(data, _PATH_KEYS)
    if any(verb in tool for verb in _CHANGES):
        keys = _TARGET_KEYS if "copy" in tool else (*_SOURCE_KEYS, *_TARGET_KEYS)
        is_tree = any(verb in tool for verb in _REMOVES)
        return NamedTool(kind, [*paths, *_texts(data, keys)], directory=directory, is_tree=is_tree)
    return NamedTool(kind, paths if any(key in data for key in _CONTENT_KEYS) else (), directory=directory)


def _as_object(given: object) -> Mapping[str, Any]:
    """Return the input as an object; some programs send it as JSON in a text."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    return given if isinstance(given, dict) else {}


def _shell(name: str, given: object, data: Mapping[str, Any], keys: Sequence[str], directory: str) -> NamedTool:
    for key in keys:
        value = data.get(key)
        if isinstance(value, str):
            arguments = data.get("args")
            if isinstance(arguments, list) and arguments and all(isinstance(word, str) for word in arguments):
                return NamedTool(SHELL, words=[value, *arguments], directory=directory)
            return NamedTool(SHELL, [value], directory=directory)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return NamedTool(SHELL, words=value, directory=directory)
    if isinstance(given, str) and not data:
        return NamedTool(SHELL, [given], directory=directory)
    raise ValueError(f"the input of {name} has no command ({', '.join(keys)})")


def _texts(data: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    texts: list[str] = []
    for key in keys:
        value = data.get(key)
        values = value if isinstance(value, list) else [value]
        for each in values:
            if isinstance(each, dict):
                each = next((each[inner] for inner in _PATH_KEYS if isinstance(each.get(inner), str)), None)
            if isinstance(each, str) and each:
                texts.append(each)
    return texts
