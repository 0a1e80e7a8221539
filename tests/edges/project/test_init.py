"""init, said twice at once, and killed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from liza.cli import app
from liza.config import confirmed_settings
from liza.crew.crew import find_crew
from liza.git import slots_directory
from liza.git.runner import Git
from liza.model.errors import Missing, Refused, UsageError
from liza.model.paths import Paths
from liza.project.baseline import InitOptions
from liza.project.commands import COMMAND_RUN
from liza.project.detect import read_project
from liza.project.init import init
from liza.recovery.doctor import doctor
from liza.system import processes
from liza.system.locks import lock_path
from tests.conftest import commit_all, git
from tests.journeys.crews import BIN


def test_a_second_init_is_refused_and_changes_nothing(repo: Path) -> None:
    with lock_path(repo / ".git"), pytest.raises(Refused, match="another"):
        init(repo, InitOptions(goal="g", no_test=True))
    assert not (repo / ".liza").exists()


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("def test_sum(): pass\n", "pytest"),
        ("from x import y\n\nasync def test_sum(): pass\n", "pytest"),
        ("import pytest\n\nclass TestSum:\n    def test_sum(self): pass\n", "pytest"),
        ("import unittest\n\nclass Sum(unittest.TestCase):\n    def test_sum(self): pass\n", "unittest"),
    ],
)
def test_tests_that_unittest_does_not_find_are_run_with_pytest(repo: Path, text: str, module: str) -> None:
    (repo / "tests").mkdir()
    (repo / "tests" / "test_sum.py").write_text(text)
    (repo / "tests" / "test_directory.py").mkdir()
    test = read_project(repo, Git(repo)).test
    assert test is not None
    assert test.text.startswith(f"python3 -m {module} ")


def test_formatters_and_linters_leave_files_of_liza_alone(repo: Path) -> None:
    init(repo, InitOptions(goal="g", no_test=True))
    rules = YAML(typ="safe").load((repo / ".liza" / ".prettierrc").read_text())
    assert rules["requirePragma"] is True
    assert rules["overrides"] == [{"files": "*.json", "options": {"parser": "yaml"}}]
    assert json.loads((repo / ".liza" / ".markdownlint.json").read_text()) == {"default": False}


def test_init_works_after_its_hint_for_a_linked_git_directory(repo: Path) -> None:
    (repo / ".git").rename(repo.parent / "x.git")
    (repo / ".git").symlink_to("../x.git")
    with pytest.raises(Refused, match="is a link") as refused:
        init(repo, InitOptions(goal="g", no_test=True))
    subprocess.run(refused.value.hint, shell=True, check=True)
    init(repo, InitOptions(goal="g", no_test=True))
    assert git(repo, "status", "--porcelain") == ""


def test_init_names_the_path_of_sources_that_are_not_installed(repo: Path) -> None:
    for name, text in {"src/shop/__init__.py": "", "tests/test_shop.py": "import shop\n", "pytest.ini": ""}.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    commit_all(repo, "A package that is not installed")
    with pytest.raises(Refused, match="need the module shop") as refused:
        init(repo, InitOptions(goal="g"))
    assert refused.value.hint == 'liza init g --test "PYTHONPATH=src python3 -m pytest -q"'


def test_init_names_git_configuration_that_its_set_up_changed(repo: Path) -> None:
    """husky and lefthook set core.hooksPath, which all worktrees share."""
    facts: dict[str, str] = {}
    init(repo, InitOptions(goal="g", test="true", setup="git config core.hooksPath .husky/_"), facts.__setitem__)
    assert "git configuration core.hookspath = '.husky/_': by the set-up or the tests" in facts["changed"]


def test_a_failed_init_removes_its_files_but_leaves_the_lock(repo: Path) -> None:
    before = git(repo, "for-each-ref"), (repo / ".git" / "info" / "exclude").read_bytes()
    with pytest.raises(Refused, match="red"):
        init(repo, InitOptions(goal="g", test="false"))
    assert (git(repo, "for-each-ref"), (repo / ".git" / "info" / "exclude").read_bytes()) == before
    assert not (repo / ".liza").exists()
    init(repo, InitOptions(goal="g", no_test=True))


@pytest.mark.campaign
def test_an_init_killed_during_its_baseline_can_be_repeated(repo: Path) -> None:
    # The shell's parent is the command's guard, whose parent is the init.
    kill = "sh -c 'guard=$(ps -o ppid= -p $PPID); kill -9 $(ps -o ppid= -p $guard); sleep 600'"
    words = [BIN / "liza", "init", "g", "--test", kill]
    assert subprocess.run(words, cwd=repo, check=False, capture_output=True).returncode == -9
    assert (repo / ".liza").is_dir()
    init(repo, InitOptions(goal="g", no_test=True))
    assert tuple(processes.iter_run_pids(COMMAND_RUN, repo)) == ()
    assert json.loads((repo / ".liza" / "made.json").read_text())["branch"] == "integration"
    assert not (repo / ".liza" / "init").exists()


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan")])
def test_an_init_with_an_empty_budget_is_refused_first(repo: Path, budget: float) -> None:
    with pytest.raises(UsageError, match="must be above 0"):
        init(repo, InitOptions(goal="g", no_test=True, budget=budget))
    assert not (repo / ".liza").exists()
    assert git(repo, "branch", "--list", "integration") == ""


def test_a_board_deleted_later_is_no_killed_init(repo: Path) -> None:
    init(repo, InitOptions(goal="g", no_test=True))
    (repo / ".liza" / "specs" / "mine.md").write_text("mine\n")
    (repo / ".liza" / "state.yaml").unlink()
    with pytest.raises(Refused, match="board"):
        init(repo, InitOptions(goal="again", no_test=True))
    assert (repo / ".liza" / "specs" / "mine.md").exists()


def test_the_hint_of_a_refused_init_repeats_goal_and_options(repo: Path) -> None:
    with pytest.raises(Refused, match="red") as refused:
        init(repo, InitOptions("Ana's bills", test="false", no_proof=True, permissions="bypass"))
    words = shlex.split(refused.value.hint)
    assert words[:3] == ["liza", "init", "Ana's bills"]
    assert words[3:] == ["--test", "false", "--permissions", "bypass", "--no-proof", "--accept-red"]
    with chdir(repo):
        app.run_liza([*words[1:], "--json"])
    assert json.loads((repo / ".liza" / "made.json").read_text())["branch"] == "integration"


def test_the_hint_of_a_refused_worktree_directory_names_another(
    repo: Path,
) -> None:
    with pytest.raises(Refused, match="inside the repository") as refused:
        init(repo, InitOptions("A goal", no_test=True, worktrees=repo / "slots"))
    words = shlex.split(refused.value.hint)
    with chdir(repo):
        app.run_liza([*words[1:], "--json"])
    assert slots_directory.read_record(Paths(repo)).directory == Path(words[-1])  # type: ignore[union-attr]


def test_doctor_without_a_test_command_names_how_to_set_it(repo: Path) -> None:
    def hint() -> str:
        (found,) = (one for one in doctor(repo).findings if one.about == "tests")
        return found.hint

    assert hint() == 'liza init "…" --test "make test"'
    init(repo, InitOptions("A goal", no_test=True))
    assert hint() == 'liza config set integration_command "make test"'


def test_an_init_whose_tests_do_not_start_keeps_their_command(repo: Path) -> None:
    with pytest.raises(Missing, match="no-such-runner is missing") as refused:
        init(repo, InitOptions("Goal", test="no-such-runner --all"))
    assert refused.value.hint == 'liza init Goal --test "no-such-runner --all" --setup "make deps"'


def test_an_ignored_env_file_is_named_and_copied_on_request(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text(".env*\n")
    (repo / ".env").write_text("KEY=1\n")
    (repo / "api").mkdir()
    (repo / "api" / ".env.local").write_text("KEY=2\n")
    facts: list[tuple[str, str]] = []
    init(repo, InitOptions(goal="g", test="cat .env", copied_files=(".env",)), lambda *fact: facts.append(fact))
    told = dict(facts)
    command = """liza config set sandbox_copy '[".env", "api/.env.local"]'"""
    assert told["files"] == f"api/.env.local: git ignores it, so no worktree has it: {command}"
    assert told["baseline"].startswith("cat .env: ok")
    state = find_crew(repo).board.read()
    assert state.config.sandbox_copy == (".env",)
    (finding,) = [finding for finding in doctor(repo).findings if finding.about == "files"]
    assert (finding.ok, finding.hint) == (True, command)
    assert finding.text.startswith("api/.env.local: git ignores it")


def test_red_tests_without_an_env_file_name_the_copying_option(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text(".env*\n")
    (repo / ".env").write_text("KEY=1\n")
    (repo / ".env.test").write_text("KEY=2\n")
    with pytest.raises(Refused, match=r"no worktree has \.env: git ignores it") as refused:
        init(repo, InitOptions("A goal", test="cat .env", copied_files=(".env.test",)))
    copying, _, accepting = refused.value.hint.partition("; or accept them: ")
    assert accepting == "liza init 'A goal' --test 'cat .env' --copy .env.test --accept-red"
    with chdir(repo):
        app.run_liza([*shlex.split(copying)[1:], "--json"])
    assert find_crew(repo).board.read().config.sandbox_copy == (".env.test", ".env")


def test_each_command_of_init_is_announced_and_its_result_printed(repo: Path) -> None:
    (repo / "shop.py").write_text("PRICE = 5\n")
    git(repo, "add", "shop.py")
    git(repo, "commit", "-q", "-m", "shop")
    facts: list[str] = []
    test = "python3 -c 'import shop'"
    init(repo, InitOptions(goal="g", setup="true", test=test), lambda name, text: facts.append(f"{name}: {text}"))
    about = ("set-up: ", "baseline: ", "proof: ")
    assert [re.sub(r"\d+ s", "0 s", fact) for fact in facts if fact.startswith(about)] == [
        "set-up: running true",
        "set-up: true: 0 s ok",
        f"baseline: running {test}",
        f"baseline: {test}: ok, 0 s",
        f"proof: running {test} again, with sources that fail",
        "proof: running true again, with sources that fail",
        "proof: the tests fail when the sources of their own worktree fail",
    ]


def test_init_reports_a_failing_set_up_also_without_tests(repo: Path) -> None:
    with pytest.raises(Refused, match="set-up fails on integration: echo broken >&2; exit 3\nbroken"):
        init(repo, InitOptions(goal="g", setup="echo broken >&2; exit 3", no_test=True))
    assert not (repo / ".liza").exists()
    init(repo, InitOptions(goal="g", setup="true", no_test=True))
    assert find_crew(repo).board.read().config.sandbox_setup == "true"


def test_permissions_are_asked_for_after_the_checks_and_only_once(repo: Path) -> None:
    asked: list[str] = []

    def refuse(program: str) -> str:
        asked.append(program)
        return "prompts"

    def ask(options: InitOptions) -> Refused:
        with pytest.raises(Refused) as refused:
            init(repo, options, ask=refuse)
        return refused.value

    ask(InitOptions(" "))
    assert asked == []
    assert "--permissions prompts" in ask(InitOptions("A goal", test="false")).hint
    assert asked == ["claude"]
    init(repo, InitOptions("A goal", no_test=True, program="script:/bin/true"), ask=refuse)
    assert find_crew(repo).board.read().config.permissions is None
    ask(InitOptions("A goal"))
    assert asked == ["claude"]


@pytest.mark.campaign
def test_a_submodule_that_git_refuses_names_the_setting_allowing_it(repo: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    git(tmp_path, "init", "-q", str(library))
    git(library, "commit", "-q", "--allow-empty", "-m", "first")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "commit", "-q", "-m", "library")
    with pytest.raises(Refused, match="transport 'file' not allowed") as refused:
        init(repo, InitOptions("A goal"))
    setup = "git -c protocol.file.allow=always submodule update --init --recursive"
    assert refused.value.hint == f"liza init 'A goal' --setup \"{setup}\""
    init(repo, InitOptions("A goal", setup=setup))


def test_init_names_uncommitted_changes(repo: Path) -> None:
    (repo / "README.md").write_text("# Changed\n")
    (repo / "plan.md").write_text("New\n")
    facts: dict[str, str] = {}
    init(repo, InitOptions(goal="g", no_test=True), facts.__setitem__)
    assert facts["changes"] == "2 files changed and not committed: agents see only committed files"


SHELL_CRLF = b"#!/bin/sh\r\nexit 0\r\n"
SCRIPTS: dict[str, tuple[str, dict[str, bytes], str]] = {
    "run directly": ("CI=1 ./run-tests", {"run-tests": SHELL_CRLF}, "./run-tests"),
    "through env": ("./t", {"t": b"#!/usr/bin/env python3\r\nprint(1)\r\n"}, "./t"),
    "given to a shell": ("bash -e t", {"t": b"#!/bin/bash\r\nif true; then\r\nexit 0\r\nfi\r\n"}, "t"),
    "run by another": ("./t", {"t": b"#!/bin/sh\nexec ci/unit.sh\n", "ci/unit.sh": SHELL_CRLF}, "ci/unit.sh"),
    "checked out so": ("./t", {"t": b"#!/bin/sh\nexit 0\n", ".gitattributes": b"* text eol=crlf\n"}, "./t"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("command", "files", "script"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_crlf_test_script_is_named_with_its_remedy(
    repo: Path, command: str, files: dict[str, bytes], script: str
) -> None:
    for name, content in files.items():
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_bytes(content)
        (repo / name).chmod(0o755)
    commit_all(repo, "tests")
    with pytest.raises(Refused, match=f"the tests do not start: {re.escape(script)} has CRLF line ends") as refused:
        init(repo, InitOptions(goal="g", test=command))
    subprocess.run(["sh", "-c", refused.value.hint], cwd=repo, check=True, capture_output=True)
    init(repo, InitOptions(goal="g", test=command))


def test_line_ends_of_scripts_that_ran_explain_no_red_tests(repo: Path) -> None:
    (repo / "t.py").write_bytes(b"#!/usr/bin/env python3\r\nassert 1 == 2\r\n")
    commit_all(repo, "tests")
    with pytest.raises(Refused, match="the tests are red"):
        init(repo, InitOptions(goal="g", test="python3 t.py"))


def test_init_proposes_commands_for_tracked_lock_files(repo: Path) -> None:
    (repo / "web").mkdir()
    for name in ("uv.lock", "web/package-lock.json", "web/untracked/uv.lock"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("x\n")
    git(repo, "add", "uv.lock", "web/package-lock.json")
    git(repo, "commit", "-q", "-m", "locks")
    facts: list[tuple[str, str]] = []
    init(repo, InitOptions(goal="g", no_test=True, setup="true"), lambda name, text: facts.append((name, text)))
    proposed = {"uv.lock": "uv lock", "web/package-lock.json": "npm install --package-lock-only"}
    crew = find_crew(repo)
    assert crew.board.read().config.generated == proposed
    assert confirmed_settings.find_unconfirmed(crew.paths, crew.board.read_as_written()) == ()
    texts = [text for name, text in facts if name == "generated"]
    assert [text.partition(": ")[::2] for text in texts] == [
        (name, f"`{command}` resolves a conflict only there (config.generated)") for name, command in proposed.items()
    ]
