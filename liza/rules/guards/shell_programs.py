"""What single programs do: those that run other commands, change the shell itself, or write files."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Protocol

from liza.rules.guards.acts import FETCH, OWN, READ, SHELL, WRITE, Act, join_path
from liza.rules.guards.normal_commands import git_scope, normalize_call, normalize_git, split_groups
from liza.rules.guards.shell_scope import Scope
from liza.rules.guards.shell_table import (
    ShellTable,
    abbreviations,
    option_values,
    positionals,
    program_name,
    split_wrapper,
)
from liza.rules.guards.word_matching import ANY, MANY, MARK, YES, is_known, is_unknown, match_glob

FROM_FILE = "\uf8f3"
"""As input of a shell: a file, whose contents are not read here."""
UNKNOWN_FILE = (
    "the file that a shell would run is not known before it runs. Write the file first, read it, and run it: bash FILE"
)
_CODE_WORD = re.compile(r"[\w@%+=:./~-]+")
_CODE_WRITES = re.compile(
    r"write|unlink|remove|rename|rmtree|truncate|symlink|chmod|mkdir|touch|copy|move|['\"][wax]\+?b?['\"]"
    r"|>\s*['\"]|['\"]\s*>"
)
_CODE_RUNS = re.compile(
    r"(?i)(?:\b(?:\w*system|popen\w*|spawn\w*|exec\w*|run|\w*call|check_output|get\w*output|create_subprocess_\w+|sh"
    r"|shell\w*|passthru|command|qx))\s*\(|\b(?:system|exec|spawn|popen)\s+(?=['\"\[])|\|\s*(?=['\"])|%x",
)
"""Where a program runs a command: a call with its arguments in parentheses or behind a space, or a pipe of awk."""
_CODE_TICKS = re.compile(r"`([^`]*)`")
_LITERAL = re.compile(r"[\s(\[{]*[fFrRbBuU]{0,2}['\"`]")
_RECIPE_MARKS = re.compile(r"(?m)(?:^\t|;)\s*[@+-]+")
_EDITORS = ("vim", "ed", "osascript")
_MAKES = ("make", "gmake")
_RUNS_TEXT = ("eval", "trap")
_TICKS = ("perl", "ruby", "php")
_RUN_LENGTH = 2000  # characters of the arguments of a call
_CODE_WORDS_EACH = 8
_TARGET = "--target-directory"
_QUOTES = ("'", '"', "`", ">")
_LAST = 200  # words of a program's text that are examined


class ScriptWalk(Protocol):
    """What the programs of a script need of the walk through it: see `shell_walk.ShellWalk`."""

    table: ShellTable
    guarded_programs: Collection[str]
    acts: list[Act]

    def script(self, text: str, scope: Scope) -> None: ...

    def invoke(self, words: list[str], scope: Scope, stdin: str) -> None: ...

    def path(self, tool: str, target: str, scope: Scope, is_tree: bool = False) -> None: ...

    def unjudged(self, scope: Scope, reason: str) -> None: ...


def run_program(walk: ScriptWalk, words: list[str], scope: Scope, stdin: str) -> None:
    """Note what a command does, and run the commands that it runs."""
    name = program_name(words[0])
    if not is_known(name):
        _unknown_program(walk, name, words, scope, stdin)
    if _change_shell(walk, name, words, scope):
        return
    if words[:2] == ["uv", "venv"]:
        scope.assign("VIRTUAL_ENV", positionals(words[2:], ("-p", "--python", "--prompt"))[:1] or (".venv",))
    table = walk.table
    if name in table.wrappers or " ".join(words[:2]) in table.wrappers:
        _wrapper(walk, name, words, scope, stdin)
    elif name in table.shells or (not is_known(name) and "-c" in words):
        _shell(walk, words, scope, stdin)
    elif name == "find":
        _find(walk, words, scope)
    elif name == "git":
        _git(walk, words, scope)
    else:
        walk.acts.append(Act(SHELL, normalize_call(table, name, words, scope), area=_area(table, name, words, scope)))
    _files(walk, name, words, scope, stdin)
    options = table.code_options(name)
    if options is not None:
        for code in _codes(name, words, options, stdin):
            scan_code(walk, code, scope, name)


def _area(table: ShellTable, name: str, words: list[str], scope: Scope) -> str:
    """Return the area where a program works: that of the directory that its options name, or of the present one."""
    directories = option_values(words[1:], table.directories.get(name, ()))
    return scope.facts.area_of(scope.resolve(directories[-1]) if directories else scope.directory)


def _unknown_program(walk: ScriptWalk, name: str, words: list[str], scope: Scope, stdin: str) -> None:
    """Also run what a command is if the unknown part of its program's name is empty, or completes a known name."""
    if is_unknown(name):
        if MANY in name and len(words) > 1:
            walk.invoke(words[1:], scope.copy(), stdin)
        normal, area = normalize_git(walk.table, ["git", *words[1:]], scope)
        walk.acts.append(Act(SHELL, [name, *normal[1:]], area=area))
        return
    for candidate in ("git", *_RUNS_TEXT, *walk.table.shells, *walk.table.wrappers):
        if match_glob(candidate, name):
            walk.invoke([candidate, *words[1:]], scope.copy(), stdin)


def runs_others(walk: ScriptWalk, name: str) -> bool:
    """Return whether a program runs other commands, which its arguments name."""
    return name in _RUNS_TEXT or name in walk.table.shells or name in walk.table.wrappers


def _change_shell(walk: ScriptWalk, name: str, words: list[str], scope: Scope) -> bool:
    """Carry out a builtin that changes the shell, or evaluates text; return whether it is one."""
    rest = words[1:]
    if name in ("cd", "pushd"):
        paths = [word for word in rest if word not in ("-P", "-L", "-e", "-@", "--")]
        scope.change_directory(paths[0] if paths else scope.facts.home or ANY)
    elif name == "popd":
        scope.change_directory(ANY)
    elif name == "eval":
        _evaluate(walk, rest, scope)
    elif name == "trap":
        if rest and rest[0] not in ("-", "-p", "-l", "--"):
            walk.script(rest[0], scope.copy())
    elif name == "alias":
        for word in rest:
            key, equals, value = word.partition("=")
            if equals and is_known(value):
                scope.aliases[key] = value
                walk.script(value, scope.copy())
    elif name in ("source", "."):
        if rest and rest[0].endswith("/bin/activate"):
            scope.assign("VIRTUAL_ENV", (scope.resolve(rest[0].removesuffix("/bin/activate")),))
        if rest and ("/dev/fd/" in rest[0] or rest[0] == "/dev/stdin"):
            walk.unjudged(scope, UNKNOWN_FILE)
    elif name in ("read", "mapfile", "readarray", "unset", "getopts"):
        for word in rest:
            scope.assign(word, (MANY,))
    elif name == "printf" and rest[:1] == ["-v"]:
        scope.assign("".join(rest[1:2]), (MANY,))
    else:
        return False
    return True


def _evaluate(walk: ScriptWalk, words: Sequence[str], scope: Scope) -> None:
    walk.script(" ".join(words), scope)


def _wrapper(walk: ScriptWalk, name: str, words: list[str], scope: Scope, stdin: str) -> None:
    """Run the command that a program such as ``env`` or ``xargs`` runs."""
    table, pair = walk.table, " ".join(words[:2])
    row = table.wrappers.get(pair)
    arguments = words[1:] if row is not None else words
    if row is None:
        row = table.wrappers[name]
    for script in option_values(arguments[1:], row.get("scripts", ())):
        walk.script(script, scope.copy())
    assignments, command = split_wrapper(arguments, row)
    inner = scope.copy()
    for word in assignments:
        key, _, value = word.partition("=")
        inner.assign(key, (value,))
    for directory in option_values(arguments[1 : len(arguments) - len(command)], row.get("directories", ())):
        inner.change_directory(directory)
    if row.get("environment"):
        inner.assign("VIRTUAL_ENV", (scope.facts.worktree,))
    if row.get("appends"):
        command = _appended(arguments, command)
    walk.acts.append(Act(SHELL, [name, *words[1:2]], area=scope.facts.area_of(scope.directory)))
    if row.get("joined"):
        walk.script(" ".join(command), inner)
    elif command and words[1] not in row.get("asks", ()):
        walk.invoke(command, inner, "" if row.get("appends") else stdin)


def _appended(words: Sequence[str], command: list[str]) -> list[str]:
    """Return the command of xargs with the words that it reads: unknown ones, in place of ``{}`` or at the end."""
    marks = option_values(words[1 : len(words) - len(command)], ("-I", "--replace", "-J"))
    if "-i" in words or "--replace" in words:
        marks.append("{}")
    if not marks:
        return [*command, MANY] if command else []
    return [word.replace(mark, MANY if word == mark else ANY) for word in command for mark in marks[:1]]


def _shell(walk: ScriptWalk, words: list[str], scope: Scope, stdin: str) -> None:
    """Run the script of ``bash -c``, or the one on stdin. A script in a file is not read."""
    index = 1
    wants_script = reads_stdin = False
    while index < len(words) and words[index][:1] in ("-", "+") and words[index] not in ("-", "--"):
        option = words[index]
        if option in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            index += 1
        elif option[:2] != "--":
            wants_script = wants_script or "c" in option
            reads_stdin = reads_stdin or "s" in option[1:]
        index += 1
    rest = [word for word in words[index:] if word not in ("-", "--")]
    inner = scope.copy()
    if wants_script:
        inner.arguments = tuple(rest[2:])
        if rest:
            walk.script(rest[0], inner)
    elif rest and not reads_stdin:
        if "/dev/fd/" in rest[0] or rest[0] == "/dev/stdin" or (is_unknown(rest[0]) and MANY in rest[0]):
            walk.unjudged(scope, UNKNOWN_FILE)
    elif stdin and stdin != FROM_FILE:
        walk.script(stdin, inner)
    walk.acts.append(Act(SHELL, [program_name(words[0]), *rest[:1]], area=scope.facts.area_of(scope.directory)))


def _find(walk: ScriptWalk, words: list[str], scope: Scope) -> None:
    walk.acts.append(Act(SHELL, words, area=scope.facts.area_of(scope.directory)))
    roots = []
    for word in words[1:]:
        if word[:1] in ("-", "(", "!"):
            break
        roots.append(word)
    for index, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            command = []
            for argument in words[index + 1 :]:
                if argument in (";", "+"):
                    break
                command.append(argument.replace("{}", ANY))
            if command:
                inner = scope.copy()
                if word.endswith("dir"):
                    inner.directory = ""
                walk.invoke(command, inner, "")
        elif word == "-delete":
            for root in roots or ["."]:
                # In the own worktree, ``find . -name '*.pyc' -delete`` must not count as a removal of its git file.
                is_own = scope.facts.area_of(scope.resolve(root)) == OWN
                walk.path(WRITE, root, scope, is_tree=not is_own)
        elif word in ("-fprint", "-fprintf", "-fls", "-fprint0"):
            for path in words[index + 1 : index + 2]:
                walk.path(WRITE, path, scope)


def _git(walk: ScriptWalk, words: list[str], scope: Scope) -> None:
    normal, where = normalize_git(walk.table, ["git", *words[1:]], scope)
    walk.acts.append(Act(SHELL, normal, area=where))
    command = [word for word in normal if word[:1] != MARK]
    inner = scope.copy()
    key = " ".join(command[:2])
    for script in option_values(command[2:], walk.table.scripts.get(key, ())):
        walk.script(script, scope.copy())
    outputs = option_values(command[2:], walk.table.output_options.get(key, ()))
    targets = positionals(command[2:], walk.table.values.get(key, ()))
    if key == "git clone":
        outputs += targets[1:2] or [targets[0].rstrip("/").rpartition("/")[2]] if targets else []
    elif key == "git init":
        outputs += targets[:1]
    elif key in ("git rm", "git mv"):
        outputs += targets
    works = git_scope(["git", *words[1:]], scope)
    for path in outputs:
        walk.path(WRITE, path, works)
    if key == "git bisect" and command[2:3] == ["run"]:
        walk.invoke(command[3:], inner, "")
    elif key == "git submodule" and "foreach" in command:
        each = [word for word in command[command.index("foreach") + 1 :] if word != "--recursive"]
        walk.script(" ".join(each), inner)


def _files(walk: ScriptWalk, name: str, words: list[str], scope: Scope, stdin: str) -> None:
    """Note the paths that a program writes or reads by its arguments."""
    table = walk.table
    paths = positionals(words[1:], table.values.get(name, ()))
    if name in table.removes:
        for path in paths:
            walk.path(WRITE, path, scope, is_tree=True)
    elif name in table.writes or name in table.modes:
        has_mode = name in table.modes and not any(word.startswith("--reference") for word in words)
        for path in paths[has_mode:]:
            walk.path(WRITE, path, scope)
    elif name in table.copies:
        # Not for rsync and scp, whose -t is another option.
        has_target = _TARGET in table.values.get(name, ())
        target = option_values(words[1:], ("-t", *abbreviations(_TARGET))) if has_target else []
        sources, last = (paths, target) if target else (paths[:-1], paths[-1:])
        for path in last:
            walk.path(WRITE, path, scope)
            for source in sources:
                if is_known(source):
                    walk.path(WRITE, f"{path}/{program_name(source.rstrip('/'))}", scope)
        for path in sources:
            walk.path(WRITE if name == "mv" else READ, path, scope, is_tree=name == "mv")
    elif name in table.reads:
        for path in paths:
            walk.path(READ, path, scope)
    edits = table.in_place.get(name)
    if edits is not None and (not edits or any(_has_option(words[1:], option) for option in edits)):
        for path in _edited_paths(name, words[1:], paths):
            walk.path(WRITE, path, scope)
    options = split_groups(words[1:], table.requests.get(name, {}).get("letters", ""))
    for path in option_values(options, table.output_options.get(name, ())):
        walk.path(WRITE, path, scope)
    if name == "split":
        for path in paths[1:2]:
            walk.path(WRITE, path, scope)
    elif name == "dd":
        for word in words[1:]:
            if word.startswith("of="):
                walk.path(WRITE, word[3:], scope)
    elif name in ("curl", "wget"):
        walk.acts.extend(Act(FETCH, target=path) for path in paths if "." in path or ":" in path)
    elif name == "apply_patch":
        for path in patched_paths(stdin or " ".join(words[1:])):
            walk.path(WRITE, path, scope)


def _has_option(words: Sequence[str], option: str) -> bool:
    """Return whether ``-i`` is among the words, as ``-i.bak`` or in ``-ni``, or ``--in-p=x``."""
    if option.startswith("--"):
        return any(word.partition("=")[0] in abbreviations(option) for word in words)
    return any(word[:1] == "-" and word[:2] != "--" and option[1] in word[1:] for word in words)


def _edited_paths(name: str, words: Sequence[str], paths: list[str]) -> list[str]:
    """Return the paths that ``sed -i`` and its like change: not the script, which is the first argument without -e.

    ``sd`` has two of these: what is replaced, and by what.
    """
    if name == "sd":
        return paths[2:]
    scripts = option_values(words, ("-e", "-E", "-f", "--expression", "--file"))
    if not scripts:
        return paths[1:] if name in ("sed", "gsed", "yq") else paths
    return [path for path in paths if path not in scripts]


def patched_paths(text: str) -> list[str]:
    """Return the paths that a patch of ``apply_patch`` writes."""
    paths = []
    for line in text.split("\n"):
        for mark in ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "):
            if line.startswith(mark):
                paths.append(line[len(mark) :].strip())
    return paths


def _codes(name: str, words: Sequence[str], options: Sequence[str], stdin: str) -> list[str]:
    """Return the programs that an interpreter is given as an argument, or on stdin."""
    codes = option_values(words[1:], options)
    if not options:
        codes += positionals(words[1:])[:1]
    elif not codes and stdin and stdin != FROM_FILE:
        codes.append(stdin)
    return codes


def scan_code(walk: ScriptWalk, code: str, scope: Scope, name: str = "") -> None:
    """Look for commands and paths in the text of a program in another language; ``name`` is its interpreter.

    Only words are compared: the program is not understood. Commands are looked for where it runs some.
    """
    for piece in _run_code(code, name):
        _scan_commands(walk, piece, scope)
    if _CODE_WRITES.search(code) is None:
        return
    for match in islice(_CODE_WORD.finditer(code), _LAST * 10):
        token = match.group()
        # A whole literal: a path that is mentioned in a text is not written.
        is_literal = (
            code[match.start() - 1 : match.start()] in _QUOTES and code[match.end() : match.end() + 1] in _QUOTES
        )
        if is_literal and "/" in token and any(part[:1] == "." and part.strip(".") for part in token.split("/")):
            walk.acts.append(Act(WRITE, target=join_path(scope.directory, _home(token, scope))))


def _run_code(code: str, name: str) -> list[str]:
    """Return the parts of a program that may be commands: arguments of calls; all of it if one is computed.

    All of a makefile, without the marks before the commands of its recipes.
    """
    if name in _MAKES:
        return [_RECIPE_MARKS.sub(" ", code)]
    if not name or name in _EDITORS:
        return [code]
    pieces = [match.group(1) for match in _CODE_TICKS.finditer(code)] if name in _TICKS else []
    for match in _CODE_RUNS.finditer(code):
        piece = code[match.end() : match.end() + _RUN_LENGTH]
        if match.group().endswith("("):
            piece = _up_to_parenthesis(piece)
            if piece.strip() and _LITERAL.match(piece) is None:
                return [code]
        pieces.append(piece if match.group().endswith("(") else piece.partition("\n")[0])
    return pieces


def _up_to_parenthesis(text: str) -> str:
    level = 1
    for index, character in enumerate(text):
        level += (character == "(") - (character == ")")
        if level == 0:
            return text[:index]
    return text


def _scan_commands(walk: ScriptWalk, code: str, scope: Scope) -> None:
    tokens = _CODE_WORD.findall(code)[: _LAST * 10]
    for index, token in enumerate(tokens):
        name = program_name(token)
        if name in walk.guarded_programs:
            words = [name, *tokens[index + 1 : index + 1 + _CODE_WORDS_EACH]]
            if name == "git":
                words, where = normalize_git(walk.table, words, scope)
            else:
                where = scope.facts.area_of(scope.directory)
            walk.acts.append(Act(SHELL, words, area=where, is_code=True))


def _home(path: str, scope: Scope) -> str:
    return scope.facts.home + path[1:] if path.startswith("~/") and scope.facts.home else path


def is_set_up(table: ShellTable, words: Sequence[str]) -> bool:
    """Return whether the output of this command may be evaluated: it sets up an environment."""
    name = program_name(words[0]) if words else ""
    line = " ".join([name, *words[1:]])
    return any(
        match_glob(pattern, line) == YES or match_glob(f"{pattern} *", line) == YES
        for pattern in table.setup
        if pattern.partition(" ")[0] == name
    )
