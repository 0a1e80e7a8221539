"""The parts of a test command, and the files that define what they do: scripts and settings of runners. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath

from liza.config.rules import breakage
from liza.model.value_classes import Value, replace

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


_NO_TESTS = frozenset(
    (
        "cd", "pushd", "popd", "export", "set", "unset", "alias", "unalias", "umask", "ulimit", "trap",
        "declare", "typeset", "local", "readonly", "shopt", "hash", "exit", "return", "wait", "kill", "shift",
        "mkdir", "rmdir", "rm", "cp", "mv", "ln", "touch", "chmod", "chown", "install", "echo", "printf", "cat", "ls",
        "pwd", "date", "sleep", "true", ":", "which", "type", "env", "printenv", "nvm", "fnm", "asdf", "mise", "direnv",
        "apt", "apt-get", "brew", "apk", "virtualenv", "corepack", "service", "systemctl", "pg_ctl", "initdb",
    )
)  # fmt: skip
"""Programs and builtins that prepare a test and are none."""
_SYSTEM_DIRECTORIES = frozenset(("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"))
_STATEFUL = frozenset(
    (
        "cd", "pushd", "popd", "export", "set", "unset", "source", ".", "alias", "unalias", "umask", "ulimit", "trap",
        "declare", "typeset", "readonly", "shopt", "hash", "eval", "wait", "shift", "read", "nvm", "fnm",
    )
)  # fmt: skip
"""Commands that change the shell in which the next ones run."""
_INSTALLS = re.compile(
    r"((npm|pnpm|yarn|bun)(\s+(-\S+|ci|i|install|add|dedupe)(\s+\S+)*)?"
    r"|(\S*/)?(python[\d.]*\s+-m\s+)?pip[\d.]*\s+(install|uninstall|download)\b.*|(\S*/)?python[\d.]*\s+-m\s+venv\b.*"
    r"|uv\s+(sync|lock|venv|pip\s+(install|sync)|python\s+install|tool\s+install)\b.*"
    r"|(poetry|pdm|pipenv|bundle|composer|conda|mamba|hatch\s+env)\s+(install|sync|update|create|env)\b.*"
    r"|go\s+(mod\s+(download|tidy|vendor)|install)\b.*|cargo\s+(fetch|install)\b.*|rustup\b.*|mix\s+(local\S*|deps\.get)\b.*"
    r"|git\s+(submodule|lfs|fetch|config)\b.*|(npx\s+|pnpm\s+|\S*/)?playwright\s+install\b.*"
    r"|docker(-|\s+)compose\s+(.*\s)?(up|down|pull|start|stop|wait)\b.*|docker\s+(run\s+-d|pull|start|stop|rm|network)\b.*"
    r"|\S+\s+(--version|-V))"
)
_GENERATES = re.compile(
    r"(go|buf|sqlc|templ|((npx|pnpm|yarn)\s+)?prisma)\s+generate\b.*|(protoc|mockgen|mockery|stringer|wire)\b.*"
    r"|(\S*/)?(python[\d.]*\s+)?(\S*/)?manage\.py\s+(migrate|collectstatic|flush|loaddata|compilemessages)\b.*"
    r"|(alembic|flask\s+db)\s+upgrade\b.*|((npx|pnpm|yarn)\s+)?prisma\s+(migrate|db)\b.*"
    r"|(\S*/)?(rails|rake)\s+db:\S+.*|(diesel|sqlx)\s+(migration|migrate|database)\b.*|mix\s+ecto\.\S+.*|createdb\b.*"
)
"""Generators of sources and migrations of databases. They do not read the sources; what they write is compared."""
_ENVIRONMENT_FILE = re.compile(r"(?:\.|source)\s+\S*(?:activate|env|rc|profile|nvm\.sh)\S*")
_FILE_CHECK = re.compile(r"(\[\[?|test)\s+(!\s+)?-[defhLrswx]\s+[^$`]+")
_RUNS_TESTS = re.compile(
    r"(?:^|[\s/;&|(])(?:[\w.+-]*(?:tests?|specs?|check|verify|lint)[\w.+-]*|jest|vitest|mocha|tox|nox|playwright|cypress)"
    r"(?:[\s;&|)]|$)"
)
_ENDS_SHELL = re.compile(r"\b(exit|exec|return)\b")
_FAILS_COMMAND = re.compile(r"\bexit\b(?!\s*0\b)")
_ERREXIT = re.compile(r"set\s+(?:-\w*\s+)*-(?:\w*e\w*|o\s+errexit)\b")
_NO_ERREXIT = re.compile(r"set\s+\+(?:\w*e\w*|o\s+errexit)\b")
PART_MARK = "liza: part "
"""Start of the line before the output of a part: its number follows."""


class Connector(StrEnum):
    """What separates a statement from the next one."""

    AND = "&&"
    SEQUENCE = ";"
    END = ""


class Statement(Value):
    """A statement at the top level of a command, its simple ``commands``, and what follows it."""

    text: str
    commands: tuple[str, ...]
    connector: Connector
    is_background: bool = False

    def followed_by(self, connector: Connector) -> Statement:
        """Return the statement with another connector."""
        return replace(self, connector=connector)

    @property
    def is_test(self) -> bool:
        """Whether it may be a test: it does more than to prepare one. A background process is taken for a service."""
        if self.is_background:
            return any(_RUNS_TESTS.search(command) is not None for command in self.commands)
        return not all(map(is_preparation, self.commands))

    @property
    def keeps_state(self) -> bool:
        """Whether it changes the shell in which the next statements run."""
        if _ENDS_SHELL.search(self.text) is not None:
            return False
        return self.is_background or any(_changes_shell(command) for command in self.commands)


def test_positions(statements: Sequence[Statement]) -> tuple[int, ...]:
    """Return the positions of the statements that may be tests. Without another test, a background process is one, and
    without that the last statement: its exit status is that of the gate."""
    tests = tuple(number for number, statement in enumerate(statements) if statement.is_test)
    tests = tests or tuple(number for number, statement in enumerate(statements) if statement.is_background)
    return tests or tuple(range(len(statements)))[-1:]


def is_preparation(command: str) -> bool:
    """Return whether a simple command is plainly no test, such as ``cd``, an assignment, or an installer."""
    text = _without_assignments(command)
    if not text or re.match(r"\S+\s*\(\)|function\s", text):
        return True
    first = text.split()[0]
    directory, _, program = first.rpartition("/")
    # A script of the project may have the name of a system program.
    if program in _NO_TESTS and (not directory or directory in _SYSTEM_DIRECTORIES):
        return program != "env" or len(text.split()) == 1
    patterns = (_INSTALLS, _GENERATES, _FILE_CHECK, _ENVIRONMENT_FILE)
    return any(pattern.fullmatch(text) is not None for pattern in patterns)


def _changes_shell(command: str) -> bool:
    text = _without_assignments(command)
    return not text or re.match(r"\S+\s*\(\)|function\s", text) is not None or text.split()[0] in _STATEFUL


def _without_assignments(command: str) -> str:
    r"""Return a simple command without the assignments before it: ``pytest`` for ``A=1 B='x y' pytest``."""
    value = r"""(?:[^\s'"\\$`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^()]*\)|\$\{[^}]*\}|\$|`[^`]*`)*"""
    return re.sub(rf"^(?:[A-Za-z_]\w*\+?={value}(?:\s+|$))+", "", command.strip(), flags=re.S)


def lost_statements(statements: Sequence[Statement]) -> tuple[int, ...]:
    """Return the tests whose exit status does not decide that of the command, by their positions.

    A later statement decides it instead, such as ``echo`` in ``pytest; echo done``.
    """
    # `exit $?` passes on what came before; `exit $status` a status that the command kept.
    rest = list(statements)
    while len(rest) > 1 and re.fullmatch(r'exit(\s+"?\$\??"?)?', rest[-1].text.strip()):
        rest.pop()
    if len(rest) > 1 and re.match(r'exit\s+"?\$', rest[-1].text.strip()):
        return ()
    tests = test_positions(statements)
    lost: list[int] = []
    has_errexit = False
    for position, statement in enumerate(rest):
        if _ERREXIT.match(statement.text.strip()):
            has_errexit = True
        elif _NO_ERREXIT.match(statement.text.strip()):
            has_errexit = False
        follows = _connector_after_list(rest, position)
        is_last_of_list = statement.connector is not Connector.AND
        decides = (has_errexit and is_last_of_list) or _FAILS_COMMAND.search(statement.text) is not None
        if position in tests and follows is Connector.SEQUENCE and not decides:
            lost.append(position)
    return tuple(lost)


def _connector_after_list(statements: Sequence[Statement], position: int) -> Connector:
    """Return what follows the list of statements, joined by ``&&``, that a statement is in."""
    while position < len(statements) - 1 and statements[position].connector is Connector.AND:
        position += 1
    return Connector.END if position == len(statements) - 1 else statements[position].connector


def write_script(statements: Sequence[Statement], record: str) -> str:
    """Return a script that runs each statement, whatever those before it returned.

    For each test it appends a line ``NUMBER STATUS`` to the file ``record``. Before each statement it prints PART_MARK
    and the number. All run in one shell, so that directory, variables and background processes last. A test runs in a
    subshell, because it may end the shell with ``exit`` or by ``set -e``.
    """
    tests = test_positions(statements)
    lines = ["liza_errexit="]
    for number, statement in enumerate(statements):
        lines.append(f"printf '\\n{PART_MARK}{number}\\n'")
        if statement.keeps_state:
            lines.append(statement.text)
            kept = "liza_status=$?"
        else:
            lines += ["(", 'if [ -n "$liza_errexit" ]; then set -e; fi', statement.text, ")"]
            kept = "liza_status=$?"
        lines += [kept, "case $- in *e*) liza_errexit=1; set +e;; esac"]
        if _NO_ERREXIT.match(statement.text.strip()):
            lines.append("liza_errexit=")
        if number in tests:
            lines.append(f"printf '%s %s\\n' {number} $liza_status >> {shlex.quote(record)}")
    return "\n".join([*lines, ""])


def read_record(text: str) -> dict[int, int]:
    """Return the exit statuses that a script of ``write_script`` recorded, by the numbers of its statements."""
    rows = [line.split() for line in text.splitlines()]
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and all(word.isdigit() for word in row)}


def output_of_part(output: str, number: int) -> str:
    """Return what the statement with that number printed."""
    after = output.partition(f"{PART_MARK}{number}\n")[2]
    return after.partition(f"\n{PART_MARK}")[0]


class PartContext(Value):
    """What is known about a part of a command that stayed green.

    ``texts``: it, and the scripts that it names. ``output``: what it printed. ``is_status_lost``: a later statement
    decides the exit status. ``sh_is_dash``: /bin/sh has no ``&>``.
    """

    text: str
    texts: tuple[str, ...] = ()
    output: str = ""
    is_status_lost: bool = False
    sh_is_dash: bool = True


_LOST_STATUS: Mapping[str, str] = {
    r"\|\|\s*(?P<word>true|:|exit\s+0|echo\b.*|printf\b.*)\s*$": "its exit status is lost: `|| {word}`",
    r"(?<!\|)\|&?\s*(?P<word>[\w./-]+)[^|&;]*$": "its exit status is that of `{word}`",
    r"(?P<word>&)\s*$": "it runs in the background: its exit status is lost",
}
_UNCOMMITTED = re.compile(
    r"(?P<word>lint-staged|--onlyChanged|pytest[^\n;&|]*--picked|jest[^\n;&|]*\s-o\b"
    r"|vitest[^\n;&|]*--changed(?![=\s]+[\w$~^@{.])|git\s+(?:status|diff)\b(?![^\n;&|)]*(?:~|\^|\.\.|\$|@|[0-9a-f]{7}))[^\n;&|)]*)"
)
_NONE_RUN = re.compile(
    r"(?mi)^.*(?P<word>no tests? (?:files? )?found|no tests ran|no test files|collected 0 items|0 passing"
    r"|ran 0 tests|running 0 tests|(?:# |. )tests 0\b|no tests? to run).*$"
)
_CACHED = re.compile(
    r"(?i)(?P<word>FULL TURBO|cache hit|\[local cache\]|\[remote cache\]|existing outputs match the cache"
    r"|read the output from the cache|\(cached\)|from cache|FROM-CACHE|cached result)"
)
_UP_TO_DATE = re.compile(r"make(?:\[\d+\])?: '?(?P<word>[^'\n]+?)'? is up to date")
_IGNORED = re.compile(r"make(?:\[\d+\])?: .*Error \d+ \(ignored\)")


def find_shape(context: PartContext) -> str:
    """Return why a part stays green although its sources fail, in a phrase; empty if no known cause is seen."""
    if context.is_status_lost:
        return "its exit status is lost: a later `;` or newline decides"
    if context.sh_is_dash and re.search(r"&>", context.text):
        return "`&>` starts it in the background in sh: its exit status is lost"
    for lost, phrase in _LOST_STATUS.items():
        match = re.search(lost, context.text)
        if match is not None and "||" not in match[0][1:].lstrip("|"):
            return phrase.format(word=" ".join(match["word"].split()))
    texts = "\n".join(context.texts)
    for pattern, text, phrase in (
        (_IGNORED, context.output, "make ignores the error: `-` before a recipe"),
        (_UP_TO_DATE, context.output, "a file or directory has the name of the make target {word}"),
        (_CACHED, context.output, "it shows a cached result: {word}"),
        (_UNCOMMITTED, texts, "it tests uncommitted changes only: `{word}`, and a candidate is committed"),
        (_NONE_RUN, context.output, "it ran no test: {word}"),
    ):
        match = pattern.search(text)
        if match is not None:
            return phrase.format(**{name: value.strip() for name, value in match.groupdict().items()})
    if "passWithNoTests" in texts:
        return "it passes without tests: `passWithNoTests`"
    return "it ran no test: all were skipped or deselected" if ran_tests(context.output) is False else ""


_SUMMARIES: tuple[tuple[str, str], ...] = (
    # A summary of a test runner, and a number of tests in it that ran.
    (r"(?m)^=*\s*(?:\d+ (?:passed|failed|skipped|deselected|xfailed|xpassed|errors?|warnings?)(?:, )?)+ in [\d.:]+.*$",
     r"\b[1-9]\d* (?:passed|failed|xfailed|xpassed|errors?)"),
    (r"(?m)^=*\s*no tests ran in .*$", r"(?!)"),
    (r"(?ms)^Ran \d+ tests? in .*?^(?:OK|FAILED)[^\n]*$", ""),
    (r"(?m)^Tests:\s+.*\d+ total.*$|^\s*Tests\s+.*\(\d+\)\s*$", r"\b[1-9]\d* (?:passed|failed)"),
    (r"(?m)^(?:#|\S) pass \d+$", r"\b[1-9]"),
    (r"(?m)^\s*\d+ passing.*$", r"^\s*[1-9]"),
    (r"(?m)^test result: .*$", r"\b[1-9]\d* (?:passed|failed)"),
    (r"(?m)^(?:ok|FAIL|\?)\s+\S+\s+(?:[\d.]+s|\(cached\)|\[no test files\]).*$", r"^(?:ok|FAIL)"),
    (r"(?mi)^no tests? (?:files? )?found.*$", r"(?!)"),
)  # fmt: skip


def ran_tests(output: str) -> bool | None:
    """Return whether the summaries of test runners in an output count a test that ran; None without a summary."""
    summaries = False
    for pattern, executed in _SUMMARIES:
        for match in re.finditer(pattern, output):
            summaries = True
            if executed and re.search(executed, match[0]):
                return True
            if not executed and _unittest_count(match[0]) > 0:
                return True
    return False if summaries else None


def _unittest_count(summary: str) -> int:
    ran = re.search(r"Ran (\d+)", summary)
    skipped = re.search(r"skipped=(\d+)", summary)
    return int(ran[1] if ran else 0) - int(skipped[1] if skipped else 0)
