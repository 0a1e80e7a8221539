"""How a project is set up and tested, by the files at its top; and whether a command ended because its runner is
missing."""

from __future__ import annotations

import pytest

from liza.model.value_classes import replace
from liza.project.rules.project_kinds import (
    Project,
    ProjectCommand,
    ProjectFiles,
    detect_project,
    suggest_init_command,
    suggest_setup_command,
    use_venv,
    worktree_commands,
)

PYTEST = {"tool": {"pytest": {"ini_options": {}}}, "build-system": {"requires": ["setuptools"]}}
EXTRA = {**PYTEST, "project": {"name": "invo", "optional-dependencies": {"docs": ["x"], "dev": ["pytest>=8"]}}}
GROUPS = {**PYTEST, "dependency-groups": {"net": ["aio"], "checks": ["pytest>=8", {"include-group": "net"}]}}
POETRY = {"tool": {"poetry": {"group": {"test": {"optional": True, "dependencies": {"pytest": "^8"}}}}}}
NODE = {"scripts": {"test": "jest"}, "devDependencies": {"jest": "^29"}}


@pytest.mark.parametrize(
    ("files", "facts", "setup", "test"),
    [
        ("package.json package-lock.json", {"package_json": NODE}, "npm ci", "npm test"),
        ("package.json pnpm-lock.yaml", {"package_json": NODE}, "pnpm install --frozen-lockfile", "pnpm test"),
        ("package.json yarn.lock", {"package_json": NODE}, "yarn install --frozen-lockfile", "yarn test"),
        ("package.json", {"package_json": NODE}, "npm install --no-package-lock", "npm test"),
        ("package.json", {"package_json": {"scripts": {"test": "node --test"}}}, None, "npm test"),
        ("package.json", {"package_json": {"scripts": {"test": 'echo "Error: no test specified"'}}}, None, None),
        ("pyproject.toml uv.lock", {"pyproject": PYTEST}, "uv sync", "uv run pytest -q"),
        ("pyproject.toml uv.lock", {"pyproject": EXTRA}, "uv sync --extra dev", "uv run pytest -q"),
        ("pyproject.toml uv.lock", {"pyproject": GROUPS}, "uv sync --group checks", "uv run pytest -q"),
        ("pyproject.toml poetry.lock", {"pyproject": PYTEST}, "poetry install", "poetry run pytest -q"),
        ("pyproject.toml poetry.lock", {"pyproject": POETRY}, "poetry install --with test", "poetry run pytest -q"),
        ("pyproject.toml pdm.lock", {"pyproject": PYTEST}, "pdm install", "pdm run pytest -q"),
        ("uv.lock", {"python_tests": True}, "uv sync", "uv run python -m unittest discover -s tests -q"),
        ("pyproject.toml", {"pyproject": PYTEST}, None, "python3 -m pytest -q"),
        ("requirements-dev.txt", {"requirements": "pytest==8\n", "python_tests": True}, None, "python3 -m pytest -q"),
        ("", {"python_tests": True}, None, "python3 -m unittest discover -s tests -q"),
        ("tests/__init__.py", {"python_tests": True}, None, "python3 -m unittest discover -s tests -t . -q"),
        ("", {"python_tests": True, "pytest_tests": True}, None, "python3 -m pytest -q"),
        ("Cargo.toml", {}, None, "cargo test"),
        ("go.mod", {}, None, "go test ./..."),
        ("Makefile", {"makefile": "all:\ntest: all\n\tcc\n"}, None, "make test"),
        ("", {}, None, None),
        (
            "package.json package-lock.json uv.lock",
            {"package_json": {"devDependencies": {"x": "1"}}, "pyproject": PYTEST},
            "npm ci && uv sync",
            "uv run pytest -q",
        ),
    ],
)
def test_the_set_up_and_the_test_command_go_together(
    files: str, facts: dict[str, object], setup: str | None, test: str | None
) -> None:
    project = detect_project(ProjectFiles(files=frozenset(files.split()), **facts))  # type: ignore[arg-type]
    assert (project.setup and project.setup.text, project.test and project.test.text) == (setup, test)


@pytest.mark.parametrize(
    ("files", "facts", "setup", "test"),
    [
        ("pyproject.toml", {"pyproject": EXTRA}, "-e '.[dev]'", ".venv/bin/python -m pytest -q"),
        ("pyproject.toml", {"pyproject": PYTEST}, "-e . pytest", ".venv/bin/python -m pytest -q"),
        (
            "pyproject.toml",
            {"pyproject": {**PYTEST, "dependency-groups": {"dev": ["pytest>=8", "six"]}}},
            "-e . 'pytest>=8' six",
            ".venv/bin/python -m pytest -q",
        ),
        ("pyproject.toml", {"pyproject": GROUPS}, "-e . 'pytest>=8' aio", ".venv/bin/python -m pytest -q"),
        (
            "requirements_test.txt",
            {"requirements": "pytest\n"},
            "-r requirements_test.txt",
            ".venv/bin/python -m pytest -q",
        ),
        (
            "requirements.txt requirements-dev.txt",
            {"requirements": "pytest\n"},
            "-r requirements.txt -r requirements-dev.txt",
            ".venv/bin/python -m pytest -q",
        ),
        (
            "requirements.txt",
            {"requirements": "pytest\n"},
            "-r requirements.txt pytest",
            ".venv/bin/python -m pytest -q",
        ),
        (
            "pyproject.toml Makefile",
            {"pyproject": EXTRA, "makefile": "test:\n\tpytest\n"},
            "-e '.[dev]'",
            'PATH="$PWD/.venv/bin:$PATH" make test',
        ),
    ],
)
def test_a_python_project_without_lock_can_have_worktree_environments(
    files: str, facts: dict[str, object], setup: str, test: str
) -> None:
    project = detect_project(ProjectFiles(files=frozenset(files.split()), **facts))  # type: ignore[arg-type]
    assert project.setup is None
    assert project.worktree_setup is not None
    assert project.worktree_setup.text == f"python3 -m venv .venv && .venv/bin/pip install -q {setup}"
    assert project.worktree_test is not None
    assert project.worktree_test.text == test


def test_a_project_whose_lock_has_no_tool_gets_an_environment() -> None:
    locked = project("pyproject.toml uv.lock", pyproject=EXTRA)
    setup = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]'"
    own = f'--setup "{setup}" --test ".venv/bin/python -m pytest -q"'
    assert suggest_setup_command(locked) == suggest_init_command(locked, "uv run pytest -q") == f'liza init "…" {own}'
    assert suggest_init_command(locked, "make check") == 'liza init "…" --test "make check" --setup "make deps"'


def test_an_environment_that_git_does_not_ignore_hides_itself() -> None:
    project = detect_project(ProjectFiles(files=frozenset(["pyproject.toml"]), pyproject=EXTRA, ignored_venv=False))
    assert project.worktree_setup is not None
    assert project.worktree_setup.text.startswith(
        "python3 -m venv .venv && echo '*' > .venv/.gitignore && .venv/bin/pip"
    )


def test_submodules_are_fetched_first_and_fetched_again_when_one_moves() -> None:
    facts = ProjectFiles(files=frozenset(["uv.lock"]), pyproject=PYTEST, submodules=("vendor/sub",))
    setup = detect_project(facts).setup
    assert setup is not None
    assert setup.text == "git submodule update --init --recursive && uv sync"
    assert setup.source_files == (".gitmodules", "vendor/sub", "uv.lock")


def test_a_monorepo_without_its_own_command_runs_its_parts() -> None:
    parts = {
        "api": ProjectFiles(files=frozenset(["uv.lock"]), pyproject=PYTEST),
        "docs": ProjectFiles(),
        "my web": ProjectFiles(files=frozenset(["package.json", "package-lock.json"]), package_json=NODE),
    }
    project = detect_project(ProjectFiles(), parts)
    assert project.test is not None
    assert project.test.text == "(cd api && uv run pytest -q) && (cd 'my web' && npm test)"
    assert project.setup is not None
    assert project.setup.text == "(cd api && uv sync) && (cd 'my web' && npm ci)"
    assert project.setup.source_files == ("api/uv.lock", "my web/package.json", "my web/package-lock.json")


@pytest.mark.parametrize("odd", [5, None, {"a": 1}, True])
def test_extras_and_groups_that_are_no_lists_name_no_tests(odd: object) -> None:
    pyproject = {
        "project": {"optional-dependencies": {"x": odd, "dev": ["pytest"]}},
        "dependency-groups": {"x": odd, "y": ["pytest"]},
    }
    own = detect_project(ProjectFiles(files=frozenset({"pyproject.toml"}), pyproject=pyproject)).worktree_setup
    assert own is not None
    assert own.text.endswith("-e '.[dev]'")
    del pyproject["project"]
    own = detect_project(ProjectFiles(files=frozenset({"pyproject.toml"}), pyproject=pyproject)).worktree_setup
    assert own is not None
    assert own.text.endswith("install -q pytest")


def project(files: str, **facts: object) -> Project:
    return detect_project(ProjectFiles(files=frozenset(files.split()), **facts))  # type: ignore[arg-type]


def command(text: str, *source_files: str) -> ProjectCommand:
    return ProjectCommand(text, source_files)


@pytest.mark.parametrize(
    ("files", "facts", "expected"),
    [
        ("pom.xml", {}, Project(command("mvn -q test", "pom.xml"))),
        ("gradlew", {}, Project(command("./gradlew test", "gradlew"))),
        ("mix.exs", {}, Project(command("mix test", "mix.exs"))),
        ("Cargo.toml go.mod", {}, Project(command("cargo test", "Cargo.toml"))),
        (
            "package.json npm-shrinkwrap.json",
            {"package_json": NODE},
            Project(command("npm test", "package.json"), command("npm ci", "package.json", "npm-shrinkwrap.json")),
        ),
        (
            "package.json bun.lock",
            {"package_json": NODE},
            Project(
                command("bun run test", "package.json"),
                command("bun install --frozen-lockfile --backend=copyfile", "package.json", "bun.lock"),
            ),
        ),
        ("package-lock.json", {"package_json": NODE}, Project()),
        ("package.json", {"package_json": {"scripts": 5}}, Project()),
        (
            "package.json",
            {"package_json": {"scripts": {"test": "x"}, "workspaces": ["a"]}},
            Project(command("npm test", "package.json"), command("npm install --no-package-lock", "package.json")),
        ),
        (
            "Pipfile.lock",
            {"python_tests": True},
            Project(
                command("pipenv run python -m unittest discover -s tests -q", "tests/"),
                command("pipenv sync --dev", "Pipfile.lock"),
            ),
        ),
        ("uv.lock", {}, Project(None, command("uv sync", "uv.lock"))),
        (
            "pyproject.toml poetry.lock",
            {"pyproject": EXTRA},
            Project(
                command("poetry run pytest -q", "pyproject.toml"),
                command("poetry install --extras dev", "poetry.lock", "pyproject.toml"),
            ),
        ),
        (
            "pyproject.toml pdm.lock",
            {"pyproject": EXTRA},
            Project(
                command("pdm run pytest -q", "pyproject.toml"),
                command("pdm install -G dev", "pdm.lock", "pyproject.toml"),
            ),
        ),
        (
            "Makefile Cargo.toml",
            {"makefile": "retest:\n\ttest:\n"},
            Project(command("cargo test", "Cargo.toml")),
        ),
        (
            "Makefile package.json",
            {"makefile": "test:", "package_json": {"dependencies": {"x": "1"}}},
            Project(command("make test", "Makefile"), command("npm install --no-package-lock", "package.json")),
        ),
        (
            "",
            {"python_tests": True},
            Project(command("python3 -m unittest discover -s tests -q", "tests/")),
        ),
        (
            "pytest.ini",
            {},
            Project(
                command("python3 -m pytest -q", "pytest"),
                None,
                command("python3 -m venv .venv && .venv/bin/pip install -q pytest"),
                command(".venv/bin/python -m pytest -q", "pytest"),
            ),
        ),
        (
            "setup.py setup.cfg",
            {"python_tests": True},
            Project(
                command("python3 -m unittest discover -s tests -q", "tests/"),
                None,
                command("python3 -m venv .venv && .venv/bin/pip install -q -e .", "setup.py", "setup.cfg"),
                command(".venv/bin/python -m unittest discover -s tests -q", "tests/"),
            ),
        ),
    ],
)
def test_a_project_is_detected_with_files_that_repeat_set_ups(
    files: str, facts: dict[str, object], expected: Project
) -> None:
    assert replace(project(files, **facts), without_tool=None) == expected


@pytest.mark.parametrize(
    ("facts", "uses_pytest"),
    [
        ({"files": frozenset({"conftest.py"})}, True),
        ({"files": frozenset({"tests/conftest.py"})}, True),
        ({"requirements": "[tool:pytest]\n"}, True),
        ({"requirements": "a\n [pytest]\n"}, False),
        ({"requirements": "  pytest>=8\n"}, True),
        ({"requirements": "my-pytest\n"}, False),
        ({"pyproject": {"tool": {"poetry": {"group": {"dev": {"pytest": "*"}}}}}}, True),
        ({"pyproject": {"tool": "pytest"}}, False),
        ({"pyproject": {"project": {"dependencies": ["pytest"]}}}, True),
        ({"pyproject": {"dependency-groups": {"dev": ["pytest"]}}}, True),
        ({"pyproject": {"tool": {"ruff": {}}}}, False),
    ],
)
def test_pytest_is_used_where_the_project_mentions_it(facts: dict[str, object], uses_pytest: bool) -> None:
    found = detect_project(ProjectFiles(**facts)).test  # type: ignore[arg-type]
    assert (found is not None and "pytest" in found.text) is uses_pytest


@pytest.mark.parametrize(
    ("extras", "chosen"),
    [
        ({"docs": ["x"], "check": ["pytest-cov"]}, "'.[check]'"),
        ({"all": ["x"], "dev": ["y"]}, "'.[dev]'"),
        ({"testing": ["x"], "all": ["y"]}, "'.[testing]'"),
        ({"tests": ["x"]}, "'.[tests]'"),
        ({"test": ["x"]}, "'.[test]'"),
        ({"all": ["x"]}, "'.[all]'"),
        ({"docs": ["x"]}, ". pytest"),
    ],
)
def test_the_extra_with_the_tests_is_installed(extras: dict[str, list[str]], chosen: str) -> None:
    setup = project(
        "pytest.ini pyproject.toml", pyproject={"project": {"optional-dependencies": extras}}
    ).worktree_setup
    assert setup is not None
    assert setup.text.endswith(f"install -q -e {chosen}")
    assert setup.source_files == ("pyproject.toml",)


def test_both_set_ups_begin_with_submodules() -> None:
    own = project("pyproject.toml", pyproject=EXTRA, submodules=("sub",))
    fetch = "git submodule update --init --recursive"
    assert own.setup == command(fetch, ".gitmodules", "sub")
    assert own.worktree_setup is not None
    assert own.worktree_setup.text.startswith(f"{fetch} && python3 -m venv .venv")
    assert own.worktree_test == command(".venv/bin/python -m pytest -q", "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("python3 -m pytest -q", ".venv/bin/python -m pytest -q"),
        ("/usr/bin/python3.12 t.py", ".venv/bin/python t.py"),
        ("pytest", ".venv/bin/pytest"),
        ("tox -e py", ".venv/bin/tox -e py"),
        ("nox", ".venv/bin/nox"),
        ("pytest-3 x", 'PATH="$PWD/.venv/bin:$PATH" pytest-3 x'),
        ("make test", 'PATH="$PWD/.venv/bin:$PATH" make test'),
    ],
)
def test_a_command_uses_the_programs_of_the_worktree(text: str, own: str) -> None:
    assert use_venv(command(text, "f")) == command(own, "f")
    assert use_venv(None) is None
    found = project("pyproject.toml", pyproject=EXTRA)
    assert found.worktree_setup is not None
    assert worktree_commands(found, text) == (found.worktree_setup.text, own)
    assert worktree_commands(Project(), text) is None


def test_parts_with_environments_in_each_worktree_are_set_up_together() -> None:
    parts = {
        "b": ProjectFiles(files=frozenset(["pytest.ini"])),
        "a": ProjectFiles(files=frozenset(["package.json", "yarn.lock"]), package_json=NODE),
        "none": ProjectFiles(files=frozenset(["uv.lock"])),
    }
    whole = detect_project(ProjectFiles(files=frozenset(["uv.lock"])), parts)
    yarn = "(cd a && yarn install --frozen-lockfile)"
    assert whole == Project(
        command("(cd a && yarn test) && (cd b && python3 -m pytest -q)", "a/package.json", "b/pytest"),
        command(f"uv sync && {yarn}", "uv.lock", "a/package.json", "a/yarn.lock"),
        command(
            f"{yarn} && (cd b && python3 -m venv .venv && .venv/bin/pip install -q pytest)",
            "a/package.json",
            "a/yarn.lock",
        ),
        command("(cd a && yarn test) && (cd b && .venv/bin/python -m pytest -q)", "a/package.json", "b/pytest"),
    )
    plain = detect_project(ProjectFiles(), {"a": parts["a"]})
    assert (plain.worktree_setup, plain.worktree_test) == (None, None)
    assert detect_project(ProjectFiles(files=frozenset(["go.mod"])), parts) == project("go.mod")
