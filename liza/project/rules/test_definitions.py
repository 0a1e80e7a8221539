"""What defines a test command: scripts that it names and settings of runners, and what their texts show. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from liza.config.rules import breakage

_RUNNER_FILES = re.compile(
    r"(?:GNU)?[Mm]akefile|.*\.mk|[Jj]ustfile|\.justfile|Taskfile\.ya?ml|Rakefile|tox\.ini|noxfile\.py|pytest\.ini|\.pytest\.ini"
    r"|conftest\.py|package\.json|pyproject\.toml|setup\.cfg|turbo\.json|nx\.json|project\.json|lerna\.json"
    r"|(?:jest|vitest|vite|karma|playwright|cypress|wdio|ava|mocha)[\w.]*\.config\.[cm]?[jt]s(?:on)?|vitest\.workspace\.[jt]s"
    r"|\.mocharc\.\w+|\.lintstagedrc(?:\.\w+)?|lint-staged\.config\.[cm]?js|phpunit\.xml(?:\.dist)?|\.rspec|pom\.xml"
    r"|build\.gradle(?:\.kts)?|settings\.gradle(?:\.kts)?|Cargo\.toml|CMakeLists\.txt|mix\.exs|deno\.jsonc?|bunfig\.toml"
)
_TEXT_THAT_NAMES = re.compile(
    r"(?:GNU)?[Mm]akefile|.*\.mk|[Jj]ustfile|\.justfile|Taskfile\.ya?ml|tox\.ini|package\.json|.*\.(?:sh|bash)|[^.]+"
)
"""Names of files whose text names other files that define the tests: scripts, and files of task runners."""
_TESTS = re.compile(r"test_.*\.\w+|.*_(?:test|tests|spec)\.\w+|.*\.(?:test|spec|tests|cy)\.\w+")
_SECTIONS = re.compile(
    r"\[+\s*(?:tool[.:]\"?(?:pytest|tox|nox|hatch|poe|pdm\.scripts|taskipy|coverage|uv\.scripts)|aliases|pytest)"
)
_MAX_ROUNDS = 4
"""How often the files that files name are read: a script that names a script, and so on."""

_LAST_COMMIT = re.compile(r"(?:HEAD|(?<![\w/.-])@)(?:~1?|\^1?)(?![\w~^]|\.\d)")
_CHANGED_ONLY = re.compile(r"(?:HEAD|@)[~^]|\b(?:changed|affected)|git\s+diff|--since\b|merge-base|\[HEAD", re.I)


_CACHES = re.compile(r"\b(?:turbo|nx|lage|wireit|moon|bazel|cache\w*)\b", re.I)


def find_definitions(
    commands: Iterable[str], names: Collection[str], read: Callable[[Sequence[str]], Mapping[str, str]]
) -> dict[str, str]:
    """Return the files that define what ``commands`` do, each with the text that matters.

    ``names``: the tracked files. ``read`` returns the texts of some of them.
    """
    tracked = frozenset(names)
    wanted = {name for name in tracked if _RUNNER_FILES.fullmatch(PurePosixPath(name).name)}
    wanted |= {name for command in commands for name in _named_files(command, ".", tracked)}
    definitions: dict[str, str] = {}
    for _ in range(_MAX_ROUNDS):
        missing = sorted(wanted - definitions.keys())
        if not missing:
            break
        texts = read(missing)
        for name in missing:
            definitions[name] = _meaning_of(name, texts.get(name, ""))
            if _TEXT_THAT_NAMES.fullmatch(PurePosixPath(name).name):
                named = _named_files(definitions[name], str(PurePosixPath(name).parent), tracked)
                # What a script among the tests runs is tested by it.
                is_inner = breakage.is_in_test_directory(name)
                wanted |= {path for path in named if not is_inner or breakage.broken_source(path, "") is None}
    return {name: text for name, text in sorted(definitions.items()) if text}


def choose_tested(sources: Collection[str], commands: Sequence[str], definitions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sources that are no part of the tests: no command, task runner or script of the tests runs them.

    If such scripts run all sources that are left, these are what is tested.
    """
    texts = [(command, ".") for command in commands]
    for name, text in definitions.items():
        if _RUNNER_FILES.fullmatch(PurePosixPath(name).name):
            texts.append((text, str(PurePosixPath(name).parent)))
    indirect = [path for path in sources if not any(_runs(text, path, directory) for text, directory in texts)]
    scripts = ("", ".sh", ".bash", ".zsh")
    tested = [path for path in indirect if path not in definitions or PurePosixPath(path).suffix not in scripts]
    return tuple(tested or indirect)


def digest_definitions(definitions: Mapping[str, str]) -> str:
    """Return a digest of the files that ``find_definitions`` returns."""
    rows = "".join(f"{name}\0{len(text)}\0{text}\0" for name, text in sorted(definitions.items()))
    return hashlib.sha256(rows.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def changed_definitions(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the files that differ, sorted."""
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _named_files(text: str, directory: str, tracked: Collection[str]) -> set[str]:
    """Return the tracked files that a text names, from the top or from ``directory``, and that define tests."""
    words = {word.removeprefix("./").rstrip(".:") for word in re.split(r"[^\w./@+-]+", text)}
    paths = words if directory == "." else words | {f"{directory}/{word}" for word in words}
    return {path for path in paths if path in tracked and _defines(path, text, directory)}


def _defines(path: str, text: str, directory: str) -> bool:
    """Whether a file that ``text`` names defines tests: it is no test, and a source only if the text runs it."""
    if _TESTS.fullmatch(PurePosixPath(path).name):
        return False
    return breakage.broken_source(path, "") is None or _runs(text, path, directory)


def _runs(text: str, path: str, directory: str) -> bool:
    """Whether a script in ``directory`` runs the source ``path`` as a program, such as ``python -u tools/check.py``."""
    names = "|".join(re.escape(name) for name in (path, path.removeprefix(f"{directory}/")))
    programs = r"(?:\S*python[\d.]*|node|bun|deno|ruby|perl|php|lua|tsx|ts-node|npx|uv|run|exec|source|\.|\w*sh)"
    as_argument = rf"(?:^|[\s;&|(\"'@-]){programs}\s+(?:-\S+\s+)*(?:\./)?"
    as_command = r"(?:^|[;&|(\"'@-]|\b(?:then|do|else)\s)\s*(?:\w+=\S*\s+)*(?:\./|(?=\S*/))"
    pattern = rf"(?:{as_argument}|{as_command}|\s\./)(?:{names})(?![\w/-])"
    return re.search(pattern, text, re.M) is not None


def _meaning_of(name: str, text: str) -> str:
    """Return the part of a file that defines the tests. Versions and dependencies do not."""
    base = PurePosixPath(name).name
    if base == "package.json":
        return _package_scripts(text)
    if base in ("pyproject.toml", "setup.cfg"):
        return _tool_sections(text)
    return text


def _package_scripts(text: str) -> str:
    try:
        package = json.loads(text)
        wanted = {key: package[key] for key in ("scripts", "jest", "mocha", "ava", "lint-staged") if key in package}
    except (ValueError, TypeError):
        return text
    return json.dumps(wanted, sort_keys=True) if wanted else ""


def _tool_sections(text: str) -> str:
    lines, is_wanted = [], False
    for line in text.splitlines():
        if line.startswith("["):
            is_wanted = _SECTIONS.match(line) is not None
        if is_wanted:
            lines.append(line.rstrip())
    return "\n".join(lines)


def names_last_commit(texts: Sequence[str]) -> bool:
    """Return whether commands or the scripts that they name compare with the commit before the last one."""
    return any(_LAST_COMMIT.search(_without_comments(text)) is not None for text in texts)


def examines_changes(texts: Sequence[str]) -> bool:
    """Return whether commands or the scripts that they name seem to test only what some commits changed."""
    return any(_CHANGED_ONLY.search(_without_comments(text)) is not None for text in texts)


def uses_cache(texts: Sequence[str]) -> bool:
    """Return whether commands or the scripts that they name seem to keep the results of tests."""
    return any(_CACHES.search(_without_comments(text)) is not None for text in texts)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
