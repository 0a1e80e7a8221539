"""How a project is set up and tested, by the files at its top; and whether a command ended because its runner is
missing."""

from __future__ import annotations

import pytest

from liza.rules.project.project_kinds import ProjectFiles, detect_project, missing_module, missing_runner

PYTEST = {"tool": {"pytest": {"ini_options": {}}}, "build-system": {"requires": ["setuptools"]}}
EXTRA = {**PYTEST, "project": {"name": "invo", "optional-dependencies": {"docs": ["x"], "dev": ["pytest>=8"]}}}
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
        ("pyproject.toml poetry.lock", {"pyproject": PYTEST}, "poetry install", "poetry run pytest -q"),
        ("pyproject.toml pdm.lock", {"pyproject": PYTEST}, "pdm install", "pdm run pytest -q"),
        ("uv.lock", {"python_tests": True}, "uv sync", "uv run python -m unittest discover -s tests -q"),
        ("pyproject.toml", {"pyproject": PYTEST}, None, "python3 -m pytest -q"),
        ("requirements-dev.txt", {"requirements": "pytest==8\n", "python_tests": True}, None, "python3 -m pytest -q"),
        ("", {"python_tests": True}, None, "python3 -m unittest discover -s tests -q"),
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
        (
            "requirements.txt requirements-dev.txt",
            {"requirements": "pytest\n"},
            "-r requirements.txt -r requirements-dev.txt",
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
def test_a_python_project_without_a_lock_can_have_an_environment_in_each_worktree(
    files: str, facts: dict[str, object], setup: str, test: str
) -> None:
    project = detect_project(ProjectFiles(files=frozenset(files.split()), **facts))  # type: ignore[arg-type]
    assert project.setup is None
    assert project.worktree_setup is not None
    assert project.worktree_setup.text == f"python3 -m venv .venv && .venv/bin/pip install -q {setup}"
    assert project.worktree_test is not None
    assert project.worktree_test.text == test


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


def test_a_monorepo_without_a_command_at_its_top_runs_those_of_its_parts() -> None:
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


@pytest.mark.parametrize(
    ("command", "code", "tail", "missing"),
    [
        ("python3 -m pytest -q", 1, "/v/bin/python3: No module named pytest", "the module pytest"),
        ("python3 -m pytest -q", 1, "E   ModuleNotFoundError: No module named 'invo'", None),
        ("pytest -q", 127, "/bin/sh: 1: pytest: not found", "pytest"),
        ("pytest -q", 127, "/bin/sh: line 1: pytest: command not found", "pytest"),
        ("npm test", 127, "> shop@1 test\n> jest\n\nsh: 1: jest: not found", "jest"),
        ("make test", 2, "make: jest: No such file or directory\nmake: *** [Makefile:2: test] Error 127", "jest"),
        ("uv run pytest", 2, "error: Failed to spawn: `pytest`\n  Caused by: No such file", "pytest"),
        ("poetry run pytest", 1, "Command not found: pytest", "pytest"),
        ("./odd", 126, "", "its program"),
        ("sh check.sh", 1, "sh: 1: helper: not found\nFAILED", None),
        ("pytest -q", 1, "1 failed, 3 passed", None),
    ],
)
def test_a_runner_that_is_missing_is_told_from_red_tests(
    command: str, code: int, tail: str, missing: str | None
) -> None:
    assert missing_runner(command, code, tail) == missing


def test_a_module_that_is_not_installed_is_named() -> None:
    assert missing_module("E   ModuleNotFoundError: No module named 'requests'") == "requests"
    assert missing_module("Error: Cannot find module 'left-pad'\nRequire stack:") == "left-pad"
    assert missing_module("Error: Cannot find module './gone'") is None


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
