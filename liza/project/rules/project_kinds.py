"""Test and set-up commands, detected from top-level files, and `init` with them. Pure: the caller reads the files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from liza.model.value_classes import Value, field

SUBMODULE_COMMAND = "git submodule update --init --recursive"
REQUIREMENT_FILES = (
    "requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements_dev.txt", "dev_requirements.txt",
    "requirements-test.txt", "test-requirements.txt", "requirements_test.txt", "test_requirements.txt",
    "requirements-tests.txt", "requirements_tests.txt", "requirements-testing.txt", "requirements/dev.txt",
    "requirements/test.txt", "requirements/tests.txt", "requirements/testing.txt", "requirements/development.txt",
    "requirements.dev.txt", "requirements.test.txt", "tests/requirements.txt", "test/requirements.txt",
)  # fmt: skip
BUILD_CACHES = {
    "Cargo.toml": ("target/",),
    "build.gradle": (".gradle/", "build/"),
    "build.gradle.kts": (".gradle/", "build/"),
    "package.json": ("**/node_modules/.cache/",),
    "mix.exs": ("_build/",),
}
"""Caches by the file of their build tool, as patterns of ``.gitignore``. The tool itself notices changed sources."""
_TEST_EXTRAS = ("test", "tests", "testing", "dev", "all")


class ProjectCommand(Value):
    """A command of the project, and the files it was detected from. If one of them changes, the set-up runs again."""

    text: str
    source_files: tuple[str, ...] = ()


class ProjectFiles(Value):
    """Relevant files of one directory of a project.

    ``files``: their names. ``package_json``, ``pyproject``: parsed content. ``makefile``, ``requirements``: text of the
    Makefile and of the requirement files. ``python_tests``: there are ``tests/test_*.py``; ``pytest_tests``: one
    of them is written for pytest. ``submodules``: their paths. ``ignored_venv``: git ignores ``.venv``.
    """

    files: frozenset[str] = frozenset()
    package_json: Mapping[str, Any] = field(default_factory=dict)
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    makefile: str = ""
    requirements: str = ""
    python_tests: bool = False
    pytest_tests: bool = False
    submodules: tuple[str, ...] = ()
    ignored_venv: bool = True


class Project(Value):
    """Detected commands of a project.

    ``setup`` is needed and runs in each worktree. ``worktree_setup`` creates an environment in each worktree; it is
    only proposed, and ``worktree_test`` is the test command that uses that environment. ``without_tool``: set-up and
    tests that are proposed if the tool of the lock file is missing.
    """

    test: ProjectCommand | None = None
    setup: ProjectCommand | None = None
    worktree_setup: ProjectCommand | None = None
    worktree_test: ProjectCommand | None = None
    without_tool: tuple[str, str] | None = None


def detect_project(facts: ProjectFiles, parts: Mapping[str, ProjectFiles] | None = None) -> Project:
    """Return the commands of a project. ``parts`` are its directories; they count only if the top has no tests."""
    project = _detect_directory(facts)
    if project.test is None and parts:
        project = _combine_parts(
            project, {directory: _detect_directory(files) for directory, files in sorted(parts.items())}
        )
    if not facts.submodules:
        return project
    fetch = ProjectCommand(SUBMODULE_COMMAND, (".gitmodules", *facts.submodules))
    return Project(
        project.test, _chain(fetch, project.setup), _chain(fetch, project.worktree_setup), project.worktree_test
    )


def _detect_directory(facts: ProjectFiles) -> Project:
    node, python = _node(facts), _python(facts)
    for project in (node, _make(facts, node, python), python, *_other_languages(facts)):
        if project.test is not None:
            break
    else:
        project = Project()
    # A project in two languages needs what both need.
    setups = [project.setup for project in (node, python) if project.setup is not None]
    setup = setups[0] if setups else None
    for more in setups[1:]:
        setup = _chain(setup, more)
    own = _chain(node.setup, python.worktree_setup) if python.worktree_setup is not None else None
    without_tool = python.without_tool if project is python and setups == [python.setup] else None
    return Project(project.test, setup, own, use_venv(project.test) if own else None, without_tool)


def find_caches(tracked: Iterable[str]) -> tuple[str, ...]:
    """Return the caches that stay between gates, for the tools whose files are among ``tracked``. Deeper files than in
    the second directory level do not count: they are examples and test data."""
    names = {PurePosixPath(name).name for name in tracked if name.count("/") <= 2}
    return tuple(dict.fromkeys(cache for name, caches in BUILD_CACHES.items() if name in names for cache in caches))


def worktree_commands(project: Project, command: str) -> tuple[str, str] | None:
    """Return the set-up of an environment in each worktree and the test command that uses it; None if unknown.

    ``command`` is the current test command. It is kept if it is not the detected one.
    """
    if project.worktree_setup is None:
        return None
    usual = project.test is not None and project.test.text == command
    test = project.worktree_test if usual and project.worktree_test else use_venv(ProjectCommand(command))
    return project.worktree_setup.text, test.text if test else command


def use_venv(command: ProjectCommand | None) -> ProjectCommand | None:
    """Return the command changed so that it uses the programs of ``.venv`` in the working directory."""
    if command is None:
        return None
    match = re.fullmatch(r"(?:\S*/)?(python|pytest|tox|nox)[\d.]*( .*)?", command.text)
    if match:
        return ProjectCommand(f".venv/bin/{match[1]}{match[2] or ''}", command.source_files)
    return ProjectCommand(f'PATH="$PWD/.venv/bin:$PATH" {command.text}', command.source_files)


def _chain(first: ProjectCommand | None, second: ProjectCommand | None) -> ProjectCommand | None:
    if first is None or second is None:
        return first or second
    return ProjectCommand(f"{first.text} && {second.text}", (*first.source_files, *second.source_files))


def _node(facts: ProjectFiles) -> Project:
    if "package.json" not in facts.files:
        return Project()
    tool, setup = "npm", None
    for lock, name, command in (
        ("package-lock.json", "npm", "npm ci"),
        ("npm-shrinkwrap.json", "npm", "npm ci"),
        ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
        # bun has no variable for this: its hard links would share files with its cache and other worktrees.
        ("bun.lock", "bun", "bun install --frozen-lockfile --backend=copyfile"),
    ):
        if lock in facts.files:
            tool, setup = name, ProjectCommand(command, ("package.json", lock))
            break
    needs = any(facts.package_json.get(name) for name in ("dependencies", "devDependencies", "workspaces"))
    if setup is None and needs:
        setup = ProjectCommand("npm install --no-package-lock", ("package.json",))
    scripts = facts.package_json.get("scripts")
    script = str(scripts.get("test", "")) if isinstance(scripts, Mapping) else ""
    if not script or "no test specified" in script:  # `npm init` writes a script without a test
        return Project(setup=setup)
    run = "bun run test" if tool == "bun" else f"{tool} test"
    return Project(ProjectCommand(run, ("package.json",)), setup)


def _make(facts: ProjectFiles, node: Project, python: Project) -> Project:
    if not any(line.startswith("test:") for line in facts.makefile.splitlines()):
        return Project()
    return Project(ProjectCommand("make test", ("Makefile",)), node.setup or python.setup)


def _python(facts: ProjectFiles) -> Project:
    with_pytest = (
        not facts.files.isdisjoint(("pytest.ini", "conftest.py", "tests/conftest.py"))
        or facts.pytest_tests
        or _mentions_pytest(facts.pyproject)
        or re.search(r"^\s*pytest\b|^\[(tool:)?pytest\]", facts.requirements, re.MULTILINE) is not None
    )
    words, source_files = ("pytest -q", "pyproject.toml" if "pyproject.toml" in facts.files else "pytest")
    if not with_pytest:
        if not facts.python_tests:
            return Project(setup=_locked_runner(facts)[1])
        # Tests of a package import each other relative to it: only its parent can be the top.
        top = " -t ." if "tests/__init__.py" in facts.files else ""
        words, source_files = (f"unittest discover -s tests{top} -q", "tests/")
    runner, setup = _locked_runner(facts)
    own = _venv_setup(facts, with_pytest)
    if runner:
        without_tool = None if own is None else (own.text, f".venv/bin/python -m {words}")
        words = words if with_pytest else f"python -m {words}"
        return Project(ProjectCommand(f"{runner} {words}", (source_files,)), setup, without_tool=without_tool)
    return Project(ProjectCommand(f"python3 -m {words}", (source_files,)), None, own)


def _locked_runner(facts: ProjectFiles) -> tuple[str, ProjectCommand | None]:
    """Return the command prefix and the set-up of the tool that a lock file belongs to; empty and None without one."""
    extra, group = _test_extra(facts), _test_group(facts)
    # Both install the group `dev` without being asked.
    asked = "" if group == "dev" else group
    poetry_group = _poetry_test_group(facts)
    for lock, runner, setup in (
        ("uv.lock", "uv run", "uv sync" + (f" --extra {extra}" if extra else f" --group {asked}" if asked else "")),
        (
            "poetry.lock",
            "poetry run",
            "poetry install"
            + (f" --extras {extra}" if extra else "")
            + (f" --with {poetry_group}" if poetry_group else ""),
        ),
        ("pdm.lock", "pdm run", "pdm install" + (f" -G {extra}" if extra else "")),
        ("Pipfile.lock", "pipenv run", "pipenv sync --dev"),
    ):
        if lock in facts.files:
            return runner, ProjectCommand(
                setup, (lock, *(("pyproject.toml",) if "pyproject.toml" in facts.files else ()))
            )
    return "", None


def _venv_setup(facts: ProjectFiles, with_pytest: bool) -> ProjectCommand | None:
    """Return a set-up that creates ``.venv`` in the worktree and installs the project editable if possible."""
    required = [name for name in REQUIREMENT_FILES if name in facts.files]
    words = [word for name in required for word in ("-r", name)]
    source_files = list(required)
    installs = bool(facts.pyproject.get("build-system") or facts.pyproject.get("project"))
    if installs or "setup.py" in facts.files:
        extra = _test_extra(facts)
        words += ["-e", f"'.[{extra}]'" if extra else "."]
        source_files += [name for name in ("pyproject.toml", "setup.py", "setup.cfg") if name in facts.files]
    if with_pytest and not _test_extra(facts):
        words += _group_requirements(facts) or (
            [] if any("dev" in name or "test" in name for name in required) else ["pytest"]
        )
    if not source_files and not with_pytest:
        return None
    ignore = "" if facts.ignored_venv else " && echo '*' > .venv/.gitignore"
    return ProjectCommand(
        f"python3 -m venv .venv{ignore} && .venv/bin/pip install -q {' '.join(words)}", tuple(source_files)
    )


def _test_extra(facts: ProjectFiles) -> str:
    """Return the project's extra that contains pytest, else one of _TEST_EXTRAS; empty without one."""
    project = facts.pyproject.get("project")
    extras = project.get("optional-dependencies") if isinstance(project, Mapping) else None
    if not isinstance(extras, Mapping):
        return ""
    with_it = [name for name, needs in extras.items() if _has_pytest(needs)]
    named = [name for name in _TEST_EXTRAS if name in extras]
    return str((with_it or named or [""])[0])


def _group_requirements(facts: ProjectFiles) -> list[str]:
    """Return the requirements of the dependency group with pytest. Old versions of pip cannot install a group."""
    name = _test_group(facts)
    return [shlex.quote(requirement) for requirement in _flatten_group(_groups(facts), name)] if name else []


def _test_group(facts: ProjectFiles) -> str:
    """Return the dependency group with pytest; empty without one."""
    groups = _groups(facts)
    own = [name for name, needs in groups.items() if _has_pytest(needs)]
    return next((name for name in ("dev", *_TEST_EXTRAS) if name in own), own[0] if own else "")


def _groups(facts: ProjectFiles) -> Mapping[str, Any]:
    groups = facts.pyproject.get("dependency-groups")
    return groups if isinstance(groups, Mapping) else {}


def _flatten_group(groups: Mapping[str, Any], name: str, outer: tuple[str, ...] = ()) -> list[str]:
    """Return the requirements of a group and of the groups that it includes."""
    needs = groups.get(name)
    requirements: list[str] = []
    for need in needs if isinstance(needs, list) else ():
        if isinstance(need, str):
            requirements.append(need)
        elif isinstance(need, Mapping) and (included := str(need.get("include-group", ""))) not in (*outer, name):
            requirements += _flatten_group(groups, included, (*outer, name))
    return list(dict.fromkeys(requirements))


def _poetry_test_group(facts: ProjectFiles) -> str:
    """Return the optional group of Poetry with pytest; empty if it is installed by default, or without one."""
    tool = facts.pyproject.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, Mapping) else None
    groups = poetry.get("group") if isinstance(poetry, Mapping) else None
    for name, group in groups.items() if isinstance(groups, Mapping) else ():
        needs = group.get("dependencies") if isinstance(group, Mapping) and group.get("optional") else None
        if isinstance(needs, Mapping) and any(str(need).startswith("pytest") for need in needs):
            return str(name)
    return ""


def _has_pytest(needs: object) -> bool:
    """Return whether pytest is among the requirements of an extra or a group; False if they are not a list."""
    return isinstance(needs, list) and any(str(requirement).startswith("pytest") for requirement in needs)


def _mentions_pytest(pyproject: Mapping[str, Any]) -> bool:
    tool = pyproject.get("tool")
    return (
        (isinstance(tool, Mapping) and ("pytest" in tool or "pytest" in str(tool.get("poetry", ""))))
        or "pytest" in str(pyproject.get("project", ""))
        or "pytest" in str(pyproject.get("dependency-groups", ""))
    )


def _other_languages(facts: ProjectFiles) -> Iterator[Project]:
    for name, command in (
        ("Cargo.toml", "cargo test"),
        ("go.mod", "go test ./..."),
        ("pom.xml", "mvn -q test"),
        ("gradlew", "./gradlew test"),
        ("mix.exs", "mix test"),
    ):
        if name in facts.files:
            yield Project(ProjectCommand(command, (name,)))


def _combine_parts(top: Project, parts: Mapping[str, Project]) -> Project:
    """Return one command for all parts that have tests. Each part runs in its own directory."""
    tested = {directory: project for directory, project in parts.items() if project.test is not None}
    test = own_test = setup = own = None
    for directory, project in tested.items():
        test = _chain(test, _run_inside(directory, project.test))
        own_test = _chain(own_test, _run_inside(directory, project.worktree_test or project.test))
        setup = _chain(setup, _run_inside(directory, project.setup))
        own = _chain(own, _run_inside(directory, project.worktree_setup or project.setup))
    has_own = any(project.worktree_test for project in tested.values())
    return Project(test, _chain(top.setup, setup), own if has_own else None, own_test if has_own else None)


def _run_inside(directory: str, command: ProjectCommand | None) -> ProjectCommand | None:
    if command is None:
        return None
    source_files = tuple(f"{directory}/{name}" for name in command.source_files)
    return ProjectCommand(f"(cd {shlex.quote(directory)} && {command.text})", source_files)


INIT = 'liza init "…"'
_COMMAND = re.compile(r'liza init "…"(?P<words>[^;]*)')
_INIT_COMMAND = re.compile(r'liza init "[^"]*"(?P<words>.*)')
_ALTERNATIVE = re.compile(r"[;,] or\b")


def setup_hint(example: str = "make deps", test: str = "") -> str:
    """Return the hint to name a set-up, such as ``example``, for a project of which none is known.

    ``test``: the option of the tests.
    """
    return f"{INIT}{test} --setup {quote_option(example)}"


def suggest_init_command(project: Project, command: str, example: str = "make deps") -> str:
    """Suggest an init command that creates an environment in each worktree, and tests that use it.

    If no set-up is known for this kind of project, the person has to name it, such as ``example``; the tests are then
    ``command``.
    """
    commands_in_worktree = worktree_commands(project, command)
    if commands_in_worktree is None and project.test is not None and project.test.text == command:
        commands_in_worktree = project.without_tool
    if commands_in_worktree is None:
        return setup_hint(example, f" --test {quote_option(command)}")
    return _format_init_command(*commands_in_worktree)


def suggest_setup_command(project: Project) -> str:
    """Suggest an init command with another set-up than that of the project, whose tool is missing."""
    return setup_hint() if project.without_tool is None else _format_init_command(*project.without_tool)


def _format_init_command(setup: str, test: str) -> str:
    return f"{INIT} --setup {quote_option(setup)} --test {quote_option(test)}"


def quote_option(text: str) -> str:
    """Return the text as one word of a command line, in double quotes where that is possible."""
    return f'"{text}"' if not set('"$`\\!') & set(text) else shlex.quote(text)


def join_commands(hints: Sequence[str]) -> str:
    """Return one command for several hints, in their order: of each its first alternative, and one `liza init` at the
    end with the options of all.
    """
    commands: list[str] = []
    options: list[str] = []
    for hint in hints:
        for command in _ALTERNATIVE.split(hint)[0].split(" && "):
            if match := _INIT_COMMAND.fullmatch(command):
                options.append(match["words"])
            elif command and command not in commands:
                commands.append(command)
    return " && ".join([*commands, *([INIT + "".join(options)] if options else [])])


def complete_init_commands(hint: str, goal: str | None, options: Sequence[tuple[str, ...]]) -> str:
    """Return the hint with the goal and the options in each `liza init "…"`.

    Options that the hint itself names are left out. Without a goal and a ``--spec``, the place of the goal stays.
    """
    subject = [shlex.quote(goal)] if goal else [] if any(option[0] == "--spec" for option in options) else ['"…"']

    def complete(match: re.Match[str]) -> str:
        named = set(match["words"].split())
        typed = [shlex.join(option) for option in options if option[0] not in named]
        return " ".join(["liza init", *subject, *typed]) + match["words"]

    return _COMMAND.sub(complete, hint)
