"""Tools of all programs in one vocabulary: shell, read, write, fetch, mcp:SERVER/TOOL, other:NAME; and their acts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from liza.guards.rules.acts import FETCH, READ, SHELL, WRITE, Act, CannotJudge, GuardFacts
from liza.guards.rules.guard_rules import TYPED, ToolRow
from liza.guards.rules.script_acts import ScriptReader
from liza.model.value_classes import Value

RAW_INPUT = "_input"  # key of an input that is no object
_DIRECTORIES = ("workdir", "cwd", "dir_path", "working_directory", "directory", "workingDirectory")
_PATHS = ("file_path", "filePath", "path", "absolute_path", "notebook_path", "target_file", "filename", "uri")
_CONTENTS = ("content", "contents", "new_string", "newString", "new_str", "file_text", "edits", "patch", "diff", "text")
_KEYS = {
    SHELL: ("command", "cmd", "script"),
    READ: (*_PATHS, "dir_path", "locations", "paths", "include"),
    WRITE: (*_PATHS, "source", "destination", "old_path", "new_path"),
    FETCH: ("url", "query", "prompt"),
    TYPED: ("chars", "input", "command"),
}
_REMOVES = ("delete", "move")
_PATCH_MARKS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")


class CalledTool(Value):
    """A tool call in the vocabulary. ``texts`` are scripts, paths, or addresses; ``directory``: where it starts.
    ``is_tree``: what is below its paths is removed with them."""

    kind: str
    texts: tuple[str, ...] = ()
    directory: str = ""
    is_tree: bool = False

    def acts(self, facts: GuardFacts, new_reader: Callable[[str], ScriptReader]) -> list[Act]:
        """Return what the tool does. ``new_reader`` makes the reader of a script. Raises CannotJudge."""
        directory = facts.join(facts.directory, self.directory or ".")
        if self.kind in (SHELL, TYPED):
            reader = new_reader(directory)
            try:
                reader.read("\n".join(self.texts))
            except CannotJudge:
                if self.kind == SHELL:  # Typed text may be no script.
                    raise
            return reader.acts
        if self.kind == FETCH:
            return [Act(FETCH, target=address) for address in self.texts or ("?",)]
        paths = [facts.join(directory, text.removeprefix("file://")) for text in self.texts]
        kind = READ if self.kind == READ else WRITE
        acts = [Act(kind, target=path, is_tree=self.is_tree) for path in paths]
        return acts if acts and kind == self.kind else [Act(self.kind), *acts]


def name_tool(name: str, tools: Mapping[str, ToolRow]) -> str:
    """Return the tool's name in the vocabulary. ``tools`` is the section of that name in ``guards.toml``."""
    if row := tools.get(name.casefold()):
        return row.kind
    if name.startswith("mcp__"):
        return "mcp:" + name[5:].replace("__", "/", 1)
    rest = name[4:].strip()
    is_server = name[:4].casefold() == "mcp:"
    return f"other:{name}" if not is_server else f"mcp:{rest}" if "/" in rest else f"mcp:*/{rest}"


def read_tool(name: str, given: object, tools: Mapping[str, ToolRow]) -> CalledTool:
    """Return what a tool is called for.

    A tool that is not in the table is taken for a shell if it has a command, and for a write if it has a path and a
    content. Raises ValueError if the input of a shell has no command.
    """
    kind, row = name_tool(name, tools), tools.get(name.casefold(), ToolRow())
    if isinstance(given, dict) and list(given) == [RAW_INPUT]:
        given = given[RAW_INPUT]
    data: Any = given
    if isinstance(given, str):  # some programs send an object as JSON in a text
        with suppress(ValueError, RecursionError):
            data = json.loads(given)
    data = data if isinstance(data, dict) else {}
    directory = next((value for key in _DIRECTORIES if isinstance(value := data.get(key), str)), "")
    if kind not in _KEYS and any(isinstance(data.get(key), str | list) for key in _KEYS[SHELL][:2]):
        kind = SHELL
    keys = row.key or _KEYS.get(kind, _PATHS if any(key in data for key in _CONTENTS) else ())
    if kind == SHELL:
        commands = [given] if isinstance(given, str) and not data else [data.get(key) for key in keys]
        scripts = [script for each in commands if (script := _script_of(each, data.get("args"))) is not None]
        if not scripts:
            raise ValueError(f"the input of {name} has no command ({', '.join(keys)})")
        return CalledTool(kind, (scripts[0],), directory)
    patches = (given,) if isinstance(given, str) and row.patch else _texts(data, row.patch)
    lines = [line for patch in patches for line in patch.split("\n")]
    patched = [line[len(mark) :].strip() for line in lines for mark in _PATCH_MARKS if line.startswith(mark)]
    if row.unless and data.get(row.unless[0]) in row.unless[1:]:
        kind = READ
    is_tree = kind == WRITE and any(verb in name.casefold() for verb in _REMOVES)
    return CalledTool(kind, (*_texts(data, keys), *patched), directory, is_tree=is_tree)


def _script_of(command: object, arguments: object) -> str | None:
    """Return a command as a script: a text, a text with arguments, or a list of words; None for another value."""
    more = [word for word in _as_list(arguments) if isinstance(word, str)]
    if isinstance(command, str) and not more:
        return command
    words = _as_list(command)
    return shlex.join([*words, *more]) if words and all(isinstance(word, str) for word in words) else None


def _texts(data: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    texts: list[str] = []
    for each in (each for key in keys for each in _as_list(data.get(key))):
        if isinstance(each, dict):
            each = next((each[key] for key in _PATHS if isinstance(each.get(key), str)), None)
        if isinstance(each, str) and each:
            texts.append(each)
    return tuple(texts)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
