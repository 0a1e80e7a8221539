"""Tools of all programs in one vocabulary: shell, read, write, fetch, mcp:SERVER/TOOL, other:NAME; and their acts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from liza.guards.rules.acts import (
    FETCH,
    MARK,
    OWN,
    READ,
    SHELL,
    UNKNOWN,
    WRITE,
    Act,
    CannotJudge,
    GuardFacts,
    ShellCommand,
    is_below,
    match_glob,
    split_options,
    values_of,
)
from liza.guards.rules.guard_rules import TYPED, ToolRow
from liza.model.value_classes import Value, field, replace

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


MAX_COMMANDS = 5_000
_GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env")
_EXPORTS = ("export", "declare", "typeset")
_READING = ("GET", "HEAD", "OPTIONS")
_TOP = "$(git rev-parse --show-toplevel)"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ITEM = re.compile(r"[^:=@]*(:=|=(?!=)|@)")
_HOST = re.compile(r"(?:[a-z]+://)?(?:[^/@]*@)?([\w-]+(?:\.[\w-]+)+)\.?(?::\d+)?(?:(/.*)|$)", re.IGNORECASE | re.DOTALL)
Table = dict[str, tuple[str, ...]]


class ProgramTable(Value):
    """What is written in ``guards.toml`` about programs, section ``shell``."""

    shells: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    directory_options: tuple[str, ...] = ()
    hook_skips: tuple[str, ...] = ()
    environment_runners: tuple[str, ...] = ()
    environments: Table = field(default_factory=dict)
    wrappers: Table = field(default_factory=dict)
    requests: dict[str, Table] = field(default_factory=dict)
    values: Table = field(default_factory=dict)


class ScriptReader:
    """Lists the acts of scripts in ``acts``. ``parse`` parses a script, and raises CannotJudge."""

    def __init__(
        self, table: ProgramTable, facts: GuardFacts, parse: Callable[[str], Sequence[ShellCommand]], directory: str
    ) -> None:
        self.table, self.facts, self.parse = table, facts, parse
        self.acts: list[Act] = []
        self._directories: dict[tuple[int, ...], str] = {(): directory}
        self._environments: list[str] = []
        self._commands = 0

    def read(self, text: str, scope: tuple[int, ...] = ()) -> None:
        """Add the acts of a script. Raises CannotJudge."""
        for command in self.parse(text):
            self.run(replace(command, scope=(*scope, *command.scope)))

    def run(self, command: ShellCommand) -> None:
        """Add the acts of one command. Raises CannotJudge."""
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            raise CannotJudge(f"it runs more than {MAX_COMMANDS} commands; put it into a script file")
        words, scope = [word.replace(MARK, "") for word in command.words], command.scope
        name = words[0].rpartition("/")[2] if words else ""
        assignments = (*command.assignments, *words[1:]) if name in _EXPORTS else command.assignments
        for variable, _, value in (assignment.partition("=") for assignment in assignments):
            if variable in ("PATH", "VIRTUAL_ENV"):
                entries = [each for each in value.split(":") if variable != "PATH" or each.endswith("/bin")]
                self._environments += [self._resolve(each.removesuffix("/bin"), scope) for each in entries]
        command = replace(command, words=tuple(words), assignments=assignments)
        if name in ("cd", "pushd", "popd"):
            path = [*split_options(words[1:])[1], "~"][0]
            self._directories[scope] = "" if name == "popd" or path == "-" else self._resolve(path, scope)
        elif name:
            rest, inner = self._read_git(command) if name == "git" else (words[1:], scope)
            named = values_of(words[1:], self.table.directory_options) if name != "git" else []
            area = self.facts.area_of(self._resolve([".", *named][-1], inner))
            self.acts.append(Act(SHELL, (name, *self._marks(name, command), *rest), area=area))
            self._run_inner(name, command)
        for path in command.outputs:
            self._write(path, scope)
        self._list_paths(name, command)

    def _run_inner(self, name: str, command: ShellCommand) -> None:
        """Add the acts of the command or the script that a command runs."""
        words, scope, wrappers = command.words, command.scope, self.table.wrappers
        pair = " ".join((name, *words[1:2]))
        if name == "eval":
            self.read(" ".join(words[1:]), scope)
        elif name in self.table.shells:
            options, arguments = split_options(words[1:], ("-o", "-O", "--rcfile", "--init-file"))
            if arguments and any(option == "-c" for option, _ in options):
                self.read(arguments[0], self._new_scope(scope))
        elif name == "find":
            for start in (at for at, word in enumerate(words, 1) if word in ("-exec", "-execdir", "-ok", "-okdir")):
                end = next((at for at in range(start, len(words)) if words[at] in (";", "+")), len(words))
                self.run(ShellCommand(words[start:end], scope=scope))
        elif name in ("source", ".") and "".join(words[1:2]).endswith("/bin/activate"):
            self._environments.append(self._resolve(words[1].removesuffix("/bin/activate"), scope))
        elif pair == "uv venv":
            self._environments.append(self._resolve([*split_options(words[2:])[1], ".venv"][0], scope))
        elif (pair in wrappers or name in wrappers) and pair not in ("command -v", "command -V"):
            is_pair, scope = pair in wrappers, self._new_scope(scope)
            settings, inner = _unwrap(words[1 + is_pair :], wrappers[pair if is_pair else name])
            for directory in values_of(words[1 : len(words) - len(inner)], self.table.directory_options):
                self._directories[scope] = self._resolve(directory, scope)
            if pair in self.table.environment_runners:
                settings += (f"VIRTUAL_ENV={self.facts.worktree}",)
            is_fed = command.is_fed and name != "xargs"
            self.run(ShellCommand(inner, (*command.assignments, *settings), scope=scope, is_fed=is_fed))

    def _directory(self, scope: tuple[int, ...]) -> str:
        """Return the directory of a subshell, which begins in that of the shell around it; empty if it is unknown."""
        if scope not in self._directories:
            self._directories[scope] = self._directory(scope[:-1])
        return self._directories[scope]

    def _new_scope(self, scope: tuple[int, ...]) -> tuple[int, ...]:
        return (*scope, -1 - len(self._directories) - self._commands)

    def _resolve(self, path: str, scope: tuple[int, ...]) -> str:
        """Return the absolute path; empty if it is unknown."""
        directory = self._directory(scope)
        values = {"HOME": self.facts.home, **self.facts.variables, "PWD": directory}
        path = _VARIABLE.sub(lambda match: values.get(match[1] or match[2]) or match[0], path)
        path = path.replace(_TOP, self.facts.worktree or _TOP)
        is_known = directory or path[:1] in ("/", "~")
        return self.facts.join(directory, path) if is_known and "$" not in path and "`" not in path else ""

    def _write(self, path: str, scope: tuple[int, ...], is_tree: bool = False) -> None:
        target = self._resolve(path, scope)
        if target and path not in ("-", "{}") and not path.startswith("/dev/"):
            self.acts.append(Act(WRITE, target=target, is_tree=is_tree))

    def _list_paths(self, name: str, command: ShellCommand) -> None:
        """Add the paths that a program writes by its arguments, and the addresses that it fetches."""
        table = self.table
        options, paths = split_options(command.words[1:], table.values.get(name, ()))
        names = [option for option, _ in options]
        is_edit = name in table.in_place and any(option in names for option in ("-i", "--in-place", "--inplace"))
        paths = paths[1:] if is_edit and "-e" not in names else paths  # without the script
        if name in table.copies:
            for path in paths[-1:]:
                self._write(path, command.scope)
            paths = paths[:-1]
        if name in table.removes or name in table.writes or is_edit:
            for path in paths:
                self._write(path, command.scope, is_tree=name in table.removes)
        if name in table.requests:
            self.acts.extend(Act(FETCH, target=path) for path in paths if "://" in path or _HOST.fullmatch(path))

    def _read_git(self, command: ShellCommand) -> tuple[list[str], tuple[int, ...]]:
        """Return the words behind ``git``, with its options before the subcommand as marks, and a scope for ``-C``:
        ``git -C x -c Alias.y=push y z`` becomes ``@-C=x @-c=alias.y=push y z``."""
        marks: list[str] = []
        scope, words = self._new_scope(command.scope), list(command.words[1:])
        while words and words[0][:1] == "-":
            option, equals, value = words.pop(0).partition("=")
            if option in _GIT_VALUES and not equals and words:
                value = words.pop(0)
            if option == "-C":
                self._directories[scope] = self._resolve(value, scope)
            key, equals, setting = value.partition("=")
            marks.append(f"{MARK}{option}={key.lower() if option == '-c' else key}{equals}{setting}")
        if words[:1] == ["checkout"] and words[1:] and self.facts.exists(self._resolve(words[1], scope)):
            words.insert(1, "--")  # git takes it for a path, too
        return [*marks, *words], scope

    def _marks(self, name: str, command: ShellCommand) -> Iterator[str]:
        """Yield the marks of a command, for what its assignments and its options mean together."""
        table, words = self.table, command.words
        for assignment in command.assignments:
            yield MARK + assignment
            if any(match_glob(skip, assignment) for skip in table.hook_skips):
                yield f"{MARK}hooks=skipped"
        if command.is_fed and name in table.shells:
            yield f"{MARK}stdin=script"
        if name in table.requests:
            yield f"{MARK}method={_method(table.requests[name], words[1:], table.values.get(name, ()))}"
            for word in words[1:]:
                if address := _HOST.fullmatch(word.removeprefix("--url=")):
                    yield f"{MARK}url={address[1].lower()}{(address[2] or '/').lower()}"
                elif word.endswith(".sock"):
                    yield f"{MARK}url={word.rpartition('=')[2]}"
        if name == "kill" and "-1" in words and (words[1:] == ("--", "-1") or not split_options(words[1:], ("-s",))[1]):
            yield f"{MARK}target=all"  # ``kill -1 123`` sends a signal to one process
        line = " ".join((name, *words[1:3]))
        options = next((row for pattern, row in table.environments.items() if match_glob(pattern, line)), None)
        if options is not None and not self._has_own_environment(command, options):
            yield f"{MARK}environment=shared"

    def _has_own_environment(self, command: ShellCommand, options: Collection[str]) -> bool:
        """Return whether a program installs into an environment in the worktree or in /tmp: one that an option names,
        that of the program's path, or an activated one; for uv also ``.venv``. An unknown one counts as own."""
        words, scope = command.words, command.scope
        named = [self._resolve(path, scope) for path in values_of(words[1:], options) if not path[:1].isdecimal()]
        if not named and "/" in words[0]:
            named = [self._resolve(f"{words[0].rpartition('/')[0]}/..", scope)]
        elif not named and "--system" not in words:
            own = self._resolve(".venv", scope)
            named = [*self._environments, *[own] * (words[0] == "uv" and self.facts.exists(own))]
        return any(self.facts.area_of(path) in (OWN, UNKNOWN) or is_below(path, "/tmp") for path in named)


def _unwrap(words: Sequence[str], with_value: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the assignments and the command behind the options of a wrapper such as ``env -u X A=1 git push``. A word
    that begins with a digit is a number or a duration: ``timeout 5s git push``. ``{`` may follow ``time``."""
    index = 0
    while index < len(words) and (words[index][:1] == "-" or re.match(r"\{|\d|[A-Za-z_]\w*=", words[index])):
        index += 2 if words[index] in with_value else 1
    return tuple(filter(_ASSIGNMENT.match, words[:index])), tuple(words[index:])


def _method(client: Mapping[str, Sequence[str]], words: Sequence[str], values: Collection[str]) -> str:
    """Return the method of a request, which a client's options and arguments imply. A query of GraphQL reads."""
    names, senders = client.get("method", ()), client.get("body", ())
    options, arguments = split_options(words, (*names, *senders, *values))
    methods = [value.upper() for value in values_of(words, names, (*senders, *values))]
    sent = values_of(words, senders, (*names, *values))
    if "items" in client and arguments and arguments[0].isalpha():
        methods.append(arguments[0].upper())
    if sent and any(word.endswith("graphql") for word in arguments):
        is_read = all("mutation" not in text and "query" in text and text[:1] != "@" for text in sent)
        return "GET" if is_read else "POST"
    if methods:
        return next((method for method in methods if method not in _READING), methods[0])
    if any(name in client.get("read", ()) for name, _ in options):
        return "GET"
    variable = next((word for word in arguments if word[:1] == "$" and word[1:].isidentifier()), "")
    return variable or ("POST" if sent or ("items" in client and any(map(_ITEM.match, arguments[1:]))) else "GET")
