"""Which conflicts a merger resolves with a command, and which results of the command it takes."""

from __future__ import annotations

import pytest

from liza.merging.rules import generated_files
from liza.merging.rules.generated_files import GeneratorRun
from liza.project.rules import lock_files
from liza.project.rules.tree_changes import ChangedFile, TreeChanges

NPM = "npm install --package-lock-only"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("package-lock.json", "package-lock.json", True),
        ("package-lock.json", "web/package-lock.json", False),
        ("web/package-lock.json", "web/package-lock.json", True),
        ("*package-lock.json", "a/b/package-lock.json", True),
        ("gen/*.py", "gen/deep/a.py", True),
        ("gen", "gen/deep/a.py", True),
        ("gen/", "gen/a.py", True),
        ("gen", "generator.py", False),
        ("[a-c].lock", "b.lock", True),
        ("", "a", False),
    ],
)
def test_a_pattern_matches_paths_as_a_pathspec_does(pattern: str, name: str, matches: bool) -> None:
    assert (generated_files.find_command({pattern: NPM}, name) == NPM) is matches


def test_the_first_matching_pattern_counts_and_a_blank_command_never() -> None:
    generated = {"a.lock": " ", "a*": "make a", "*": "make all"}
    assert [generated_files.find_command(generated, name) for name in ("a.lock", "b")] == ["make a", "make all"]


def test_a_conflict_in_a_written_file_has_no_plan() -> None:
    generated = {"uv.lock": "uv lock"}
    assert generated_files.plan_runs(generated, ("uv.lock", "pyproject.toml")) is None


def test_a_command_runs_once_in_each_directory_in_the_order_of_the_setting() -> None:
    generated = {"*.json": NPM, "gen/*": "make gen"}
    files = ("gen/a.py", "gen/b.py", "b/x.json", "b/y.json", "a/x.json")
    assert generated_files.plan_runs(generated, files) == (
        GeneratorRun(NPM, "a", ("a/x.json",)),
        GeneratorRun(NPM, "b", ("b/x.json", "b/y.json")),
        GeneratorRun("make gen", "gen", ("gen/a.py", "gen/b.py")),
    )


def test_a_command_in_a_directory_with_odd_letters_is_quoted() -> None:
    run = GeneratorRun("make\n  lock", "it's here", ("it's here/a",))
    assert run.shell_command == "cd 'it'\"'\"'s here' || exit\nmake\n  lock"
    assert run.title == "make lock"


def test_files_of_another_command_are_not_for_a_command() -> None:
    generated = {"uv.lock": "uv lock", "package-lock.json": NPM, ".pnp.cjs": "uv lock"}
    runs = generated_files.plan_runs(generated, ("uv.lock",))
    assert runs is not None
    changes = TreeChanges(changed=(ChangedFile("uv.lock"), ChangedFile("package-lock.json"), ChangedFile("sub/x")))
    made, foreign = generated_files.find_made(generated, runs, changes, (".pnp.cjs", "node_modules/"))
    assert made == (".pnp.cjs", "node_modules/", "package-lock.json", "sub/x", "uv.lock")
    assert foreign == ("node_modules/", "package-lock.json", "sub/x")


def test_a_coder_reads_the_command_for_each_generated_file() -> None:
    lines = generated_files.describe_commands({"*uv.lock": "uv lock"}, ("a.py", "uv.lock", "my app/uv.lock"))
    assert lines == (
        "uv.lock is generated: do not merge it by hand, but: git checkout --theirs -- uv.lock && uv lock",
        "my app/uv.lock is generated: do not merge it by hand, but: "
        "git checkout --theirs -- 'my app/uv.lock' && (cd 'my app' && uv lock)",
    )


def test_what_was_made_again_is_in_the_message_of_the_merge() -> None:
    runs = (GeneratorRun("uv lock", "", ("uv.lock",)), GeneratorRun(NPM, "web", ("web/package-lock.json",)))
    assert generated_files.format_trailers(runs) == (
        "Re-made: uv.lock by uv lock",
        f"Re-made: web/package-lock.json by {NPM}",
    )
    assert generated_files.describe_made(runs) == (
        f"re-made: uv.lock by uv lock; re-made: web/package-lock.json by {NPM}"
    )


@pytest.mark.parametrize(
    ("tracked", "proposed"),
    [
        (["uv.lock", "pyproject.toml"], {"uv.lock": "uv lock"}),
        (["poetry.lock"], {"poetry.lock": "poetry lock"}),
        (["package-lock.json", "web/package-lock.json"], {"package-lock.json": NPM, "web/package-lock.json": NPM}),
        (["pnpm-lock.yaml"], {"pnpm-lock.yaml": "pnpm install --lockfile-only --no-frozen-lockfile"}),
        (["yarn.lock"], {"yarn.lock": "yarn install"}),
        (["a/yarn.lock", "a/.yarnrc.yml"], {"a/yarn.lock": "yarn install --mode=update-lockfile"}),
        (["Cargo.lock", "go.sum", "go.mod"], {"Cargo.lock": "cargo update --workspace", "go.sum": "go mod tidy"}),
        (["a/b/uv.lock", "a/b/c/uv.lock", "my-uv.lock"], {"a/b/uv.lock": "uv lock"}),
        (["README.md"], {}),
    ],
)
def test_commands_are_proposed_for_the_lock_files_of_a_project(tracked: list[str], proposed: dict[str, str]) -> None:
    assert lock_files.propose_generated(tracked) == proposed
