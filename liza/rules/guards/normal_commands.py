"""Bring commands into the form that rules match; what is added to a command begins with MARK, here written ``@``.

Options of git before its subcommand are marked, because a rule must not take them for those of the subcommand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.rules.guards.acts import CREW, ELSEWHERE, OWN, UNKNOWN, is_below
from liza.rules.guards.shell_scope import Scope
from liza.rules.guards.shell_table import ShellTable, option_values, positionals
from liza.rules.guards.word_matching import ANY, MANY, MARK, YES, is_known, is_unknown, match_glob

_WITH_VALUE = (
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--exec-path",
    "--attr-source",
)
_ENVIRONMENT = {"GIT_DIR": "--git-dir", "GIT_COMMON_DIR": "--git-dir", "GIT_WORK_TREE": "--work-tree"}
EXPORTS = ("export", "declare", "typeset")
_READING = ("GET", "HEAD", "OPTIONS")
_CONFIGURING = ("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_EXEC_PATH")


def normalize_git(table: ShellTable, words: Sequence[str], scope: Scope) -> tuple[list[str], str]:
    """Return the words of a git command, and the area where it works.

    ``git -C x -c Alias.y=push y z`` becomes ``git @-c=alias.y=push y z``, with the area of ``x``.
    """
    options, rest = _git_options(words)
    normal, named = [words[0]], []
    for name, option in _ENVIRONMENT.items():
        for value in scope.variables.get(name, ()):
            normal.append(f"{MARK}{option}={value}")
            named.append(value)
    for name in _CONFIGURING:
        normal += [f"{MARK}-c=env.{name}={value}" for value in scope.variables.get(name, ()) if value != "/dev/null"]
    for option, value in options:
        if option == "-C":
            continue
        if option == "-c":
            key, equals, setting = value.partition("=")
            value = key.lower() + equals + setting
        if option in ("--git-dir", "--work-tree"):
            named.append(value)
        normal.append(f"{MARK}{option}={value}")
    return [*normal, *_mark_hooks(table, scope), *_mark_paths(rest, scope)], _place(named, git_scope(words, scope))


def _mark_hooks(table: ShellTable, scope: Scope) -> list[str]:
    """Return the mark of a command with a variable that makes a manager of git hooks run none."""
    for skip in table.hook_skips:
        name = skip.partition("=")[0]
        if any(match_glob(skip, f"{name}={value}") for value in scope.variables.get(name, ())):
            return [f"{MARK}hooks=skipped"]
    return []


def git_scope(words: Sequence[str], scope: Scope) -> Scope:
    """Return the scope in the directory where a git command works: each of its ``-C`` changes it."""
    inner = scope.copy()
    for option, value in _git_options(words)[0]:
        if option == "-C":
            inner.change_directory(value)
    return inner


def _git_options(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options of git before its subcommand, with their values, and the words behind them."""
    options: list[tuple[str, str]] = []
    index = 1
    while index < len(words) and words[index][:1] == "-":
        option, equals, value = words[index].partition("=")
        if option in _WITH_VALUE and not equals and index + 1 < len(words):
            index += 1
            value = words[index]
        index += 1
        options.append((option, value))
    return options, list(words[index:])


def _place(named: Sequence[str], inner: Scope) -> str:
    """Return the area of a git command: that of the git directory, if one is named."""
    if not inner.directory:
        return UNKNOWN
    areas = {inner.facts.area_of(inner.resolve(path)) for path in (named or ("",))}
    return areas.pop() if len(areas) == 1 else UNKNOWN


def _mark_paths(rest: list[str], scope: Scope) -> list[str]:
    """Insert ``--`` into ``checkout PATH`` if the path exists, because git then takes it for a path, too."""
    if rest[:1] == ["checkout"] and "--" not in rest and rest[1:]:
        paths = positionals(rest[1:])
        if len(paths) == len(rest) - 1 and all(is_known(path) for path in paths):
            first = scope.resolve(paths[0])
            if ANY not in first and MANY not in first and scope.facts.exists(first):
                return ["checkout", "--", *paths]
    return rest


def locate_git_path(table: ShellTable, words: Sequence[str], scope: Scope) -> str | None:
    """Return the path that ``git rev-parse`` prints; None if it prints something else.

    In a repository of which nothing is known, its paths are taken for those of the crew: a wrong guess denies a write
    that looks dangerous, and nothing else.
    """
    normal, area = normalize_git(table, words, scope)
    rest = [word for word in normal[1:] if word[:1] != MARK]
    facts, asked = scope.facts, [word for word in rest[1:] if not word.startswith("--path-format")]
    if asked == ["--show-toplevel"]:
        tops = {OWN: facts.worktree, CREW: facts.root}
        return tops.get(area) or None
    git = ".git" if area == ELSEWHERE else f"{facts.root}/.git"
    if asked[:1] == ["--git-path"] and len(asked) == 2:
        return f"{git}/{asked[1]}"
    if asked == ["--git-common-dir"]:
        return git
    if asked in (["--git-dir"], ["--absolute-git-dir"]):
        return f"{git}/worktrees/{facts.worktree.rpartition('/')[2]}" if area == OWN and facts.worktree else git
    return None


def normalize_call(table: ShellTable, name: str, words: Sequence[str], scope: Scope) -> list[str]:
    """Return the words of a command that is not one of git, with a mark for what its options mean together.

    ``gh api x -f a=b`` gets ``@method=POST``; ``curl -d x https://h/y`` also ``@url=h/y``; ``kill -9 -1`` gets
    ``@target=all``; ``pip install x`` gets ``@environment=shared`` if that is no environment of the worktree;
    ``export HUSKY=0`` gets ``@hooks=skipped``.
    """
    normal = [name, *words[1:]]
    line = " ".join(normal[:3])
    options = next((row for command, row in table.environments.items() if match_glob(command, line) == YES), None)
    if options is not None and not _has_own_environment(words, options, scope):
        return [*normal, f"{MARK}environment=shared"]
    if name in table.requests:
        urls = [url for word in words[1:] if (url := _address(word))]
        return [*normal, *(_mark_request(table, name, words[1:], urls) if urls else ())]
    if name in ("gh", "glab") and positionals(words[1:], ("-R", "--repo", "--hostname"))[:1] == ["api"]:
        return [*normal, f"{MARK}method={_api_method(words[2:])}"]
    if name in EXPORTS:
        return [*normal, *_mark_hooks(table, scope)]
    if name == "kill" and "-1" in words[1 + (words[1:2] != ["--"]) :]:
        # ``kill -1 123`` sends a signal to one process; ``kill -9 -1`` to all.
        return [*normal, f"{MARK}target=all"]
    return normal


def _has_own_environment(words: Sequence[str], options: Sequence[str], scope: Scope) -> bool:
    """Return whether a program installs into an environment in the worktree or in a temporary directory.

    That is the one that an option names, that of the program's own path, or an activated one. uv also looks for
    ``.venv``. An environment of which nothing is known counts as own.
    """
    values = option_values(words[1:], options)
    named = [value for value in values if not (value[:1].isdecimal() or value.startswith("python"))]
    if not named and "/" in words[0]:
        named = [f"{words[0].rpartition('/')[0]}/.."]  # not the program itself: it is a link to another one
    if not named and "--system" not in words:
        named = list(scope.variables.get("VIRTUAL_ENV", ()))
        entries = (entry for value in scope.variables.get("PATH", ()) for entry in value.split(":"))
        named += [entry for entry in entries if entry.endswith("/bin") and is_known(entry)]
        if words[0] == "uv" and scope.facts.exists(scope.resolve(".venv")):
            named.append(".venv")
    return any(_is_own_path(scope.resolve(path), scope) for path in named)


def _is_own_path(path: str, scope: Scope) -> bool:
    tops = ("/tmp", "/var/tmp", *scope.variables.get("TMPDIR", ()))
    return scope.facts.area_of(path) in (OWN, UNKNOWN) or any(is_below(path, top) for top in tops)


def _api_method(words: Sequence[str]) -> str:
    """Return the method of a request of ``gh api``: GET without fields, unless one is given."""
    for method in option_values(words, ("-X", "--method")):
        return method.upper()
    fields = [word for word in words if word.startswith(("-f", "-F", "--field", "--raw-field", "--input"))]
    if "graphql" in words:
        return "POST" if any("mutation" in word for word in words) else "GET"
    return "POST" if fields else "GET"


def _mark_request(table: ShellTable, name: str, words: Sequence[str], urls: Sequence[str]) -> list[str]:
    """Return the marks of a request: its method, and each address. A query of GraphQL reads."""
    row = table.requests[name]
    words = split_groups(words, row.get("letters", ""))
    arguments = positionals(words, table.values.get(name, ()))
    method = _request_method(row, words, arguments)
    if method == "POST" and all(url.endswith("/graphql") for url in urls):
        bodies = option_values(words, row.get("body", ()))
        if bodies and all(is_known(body) and body[:1] != "@" and "mutation" not in body for body in bodies):
            method = "GET"
    return [f"{MARK}method={method}", *(f"{MARK}url={url}" for url in urls)]


def _request_method(row: Mapping[str, Any], words: Sequence[str], arguments: Sequence[str]) -> str:
    """Return the method of an HTTP client; unknown if that depends on words that are not known."""
    methods = [method.upper() for method in option_values(words, row.get("method", ()))]
    if row.get("items") and arguments and arguments[0].isalpha():
        methods.append(arguments[0].upper())
    if methods:
        return next((method for method in methods if method not in _READING), methods[0])
    if any(MANY in argument and is_unknown(argument) for argument in arguments):
        return ANY
    if _has_option(words, row.get("read", ())):
        return "GET"
    if _has_option(words, row.get("put", ())):
        return "PUT"
    has_body = _has_option(words, row.get("body", ())) or (row.get("items") and any(map(_is_data, arguments[1:])))
    return "POST" if has_body else "GET"


def split_groups(words: Sequence[str], letters: str) -> list[str]:
    """Split groups of short options: ``-sXPOST`` becomes ``-s`` and ``-XPOST``. ``letters`` are those with a value."""
    split: list[str] = []
    for word in words:
        if word[:1] != "-" or word[:2] == "--" or word == "-" or not letters:
            split.append(word)
            continue
        end = next((at for at, letter in enumerate(word) if at and letter in letters), len(word))
        split += [f"-{letter}" for letter in word[1:end]]
        if end < len(word):
            split.append(f"-{word[end:]}")
    return split


def _has_option(words: Sequence[str], options: Sequence[str]) -> bool:
    """Return whether one of the options is there, also shortened or with its value."""
    for word in words:
        name = word.partition("=")[0]
        for option in options:
            if option[:2] != "--" and word.startswith(option):
                return True
            if option[:2] == "--" and (name == option or (len(name) > 4 and option.startswith(name))):
                return True
    return False


def _is_data(item: str) -> bool:
    """Return whether an argument of httpie is sent in the body: ``a=b``, ``a:=1``, ``a@x``, not ``a==b``, ``a:b``."""
    at = next((index for index, character in enumerate(item) if character in ":=@"), len(item))
    return item[at : at + 2] == ":=" or (item[at : at + 1] in ("=", "@") and item[at : at + 2] != "==")


def _address(word: str) -> str:
    """Return host and path of an address, in small letters; empty if it is none or its host is not known."""
    word = word.removeprefix("--url=")
    scheme, separator, rest = word.partition("://")
    host, _, path = (rest if separator else scheme).partition("/")
    host = host.rpartition("@")[2].partition(":")[0].rstrip(".").lower()
    is_host = "." in host and all(letter.isalnum() or letter in ".-" for letter in host) and is_known(host)
    return f"{host}/{path.lower()}" if is_host and word[:1] != "-" else ""
