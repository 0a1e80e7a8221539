"""git is run so that nothing of anybody's choosing runs with it, and so that it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from liza.git import candidates
from liza.git.runner import FALLBACK_IDENTITY, Git
from liza.git.survey import read_work_tree, survey
from liza.model.errors import GitFailed, Missing
from tests.conftest import commit_all, git


def hook(repo: Path, name: str, text: str) -> None:
    path = repo / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_git_variables_of_the_environment_do_not_lead_git_elsewhere(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", "-b", "elsewhere", str(other))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(other / "spy"))
    assert Git(repo).out("symbolic-ref", "--short", "HEAD") == "main"
    assert Git(repo).out("config", "core.fsmonitor") == "false"


def test_hooks_and_signing_are_off_and_commits_have_repositorys_identity(repo: Path) -> None:
    hook(repo, "pre-commit", "touch hooked; exit 1")
    hook(repo, "reference-transaction", f"touch {repo}/hooked")
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "gpg.program", "/bin/false")
    runner = Git(repo).with_identity()
    runner.out("commit", "--allow-empty", "-m", "made by us")
    assert not (repo / "hooked").exists()
    assert runner.out("log", "-1", "--format=%an <%ae>") == "Test Person <test@example.invalid>"


def test_without_a_configured_identity_commits_are_lizas(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    assert Git(repo).identity() == FALLBACK_IDENTITY
    assert survey(repo).identity is None
    Git(repo).with_identity().out("commit", "--allow-empty", "-m", "x")


def test_what_takes_too_long_is_killed_with_all_it_started(repo: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The grandchild holds the pipe open for writing: it ends exactly when it is dead.
    command = f"!sh -c 'exec 3>{fifo}; echo up >&3; sleep 600' & sleep 600"
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(GitFailed, match="took longer than"):
        Git(repo).out("-c", f"alias.slow={command}", "slow", timeout=1)
    os.set_blocking(reader, True)
    assert os.read(reader, 100) == b"up\n"
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_a_missing_directory_is_never_replaced_by_the_current_one(repo: Path) -> None:
    with pytest.raises(GitFailed, match="not a directory"):
        Git(repo / "gone").out("status")


def test_a_missing_git_is_reported_with_its_last_output(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GitFailed, match="fatal: Needed a single revision"):
        Git(repo).out("rev-parse", "--verify", "nothing-here^{commit}", "--")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="not installed"):
        Git(repo).out("version")


def test_names_with_newlines_arrive_whole(repo: Path) -> None:
    (repo / "two\nlines ü").write_text("x")
    assert Git(repo).names("ls-files", "--others", "-z") == ("two\nlines ü",)


def test_a_slot_without_its_git_file_is_no_outer_repository(repo: Path) -> None:
    inner = repo / "inner"
    inner.mkdir()
    assert Git(inner).out("rev-parse", "--show-toplevel") == str(repo)
    with pytest.raises(GitFailed, match="not a git repository"):
        Git(inner, ceiling=repo).out("rev-parse", "--show-toplevel")


def test_the_survey_has_branch_head_files_and_the_operation(repo: Path, tmp_path: Path) -> None:
    (repo / "README.md").write_text("changed\n")
    (repo / "new").write_text("x")
    (repo / "sub").mkdir()
    found = survey(repo / "sub")
    assert (found.root, found.branch, found.bare, found.main_checkout) == (repo, "main", False, None)
    assert (found.dirty_count, found.head) == (2, git(repo, "rev-parse", "HEAD"))
    assert found.identity == ("Test Person", "test@example.invalid")
    assert found.has_merge_tree
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = survey(tmp_path / "linked")
    assert (linked.branch, linked.main_checkout) == (None, repo)


def test_the_survey_reports_unborn_and_bare_repositories_and_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk", "young")
    assert (survey(tmp_path / "young").branch, survey(tmp_path / "young").head) == ("trunk", None)
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    bare = survey(tmp_path / "bare.git")
    assert (bare.bare, bare.dirty_count, bare.root) == (True, 0, tmp_path / "bare.git")
    (tmp_path / "none").mkdir()
    with pytest.raises(Missing, match="not in a git repository"):
        survey(tmp_path / "none")
    (tmp_path / "none" / ".git").mkdir()
    with pytest.raises(Missing, match="not in a git repository"):
        survey(tmp_path / "none")


def test_the_survey_reports_what_git_refuses(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    (repo / ".git").rename(tmp_path / "away")
    with pytest.raises(GitFailed, match=r"not a git repository: .*/worktrees/linked"):
        survey(tmp_path / "linked")
    (tmp_path / "away").rename(repo / ".git")
    (repo / ".git" / "HEAD").write_text("nonsense\n")
    with pytest.raises(GitFailed, match="128"):
        survey(repo)


def test_git_has_none_of_the_callers_git_variables(repo: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from liza.git.runner import Git\n"
        "print(Git(Path.cwd()).run('-c', 'alias.show-env=!env', 'show-env').stdout.decode())"
    )
    env = {**os.environ, "GIT_DIR": "/elsewhere", "GIT_EXEC_PATH_": "x", "GIT_PYTHON_REFRESH": "raise"}
    shown = subprocess.run([sys.executable, "-c", code], cwd=repo, env=env, check=True, capture_output=True, text=True)
    names = {line.partition("=")[0] for line in shown.stdout.splitlines()}
    assert "GIT_TERMINAL_PROMPT" in names
    assert not names & {"GIT_DIR", "GIT_EXEC_PATH_", "GIT_PYTHON_REFRESH"}


def test_the_import_of_the_runner_starts_no_program(tmp_path: Path) -> None:
    planted = tmp_path / "git"
    planted.write_text("#!/bin/sh\ntouch started\n")
    planted.chmod(0o755)
    env = {**os.environ, "PATH": f":{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-c", "import liza.git.runner"], cwd=tmp_path, env=env, check=True)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("verb", ["diff-tree", "diff", "log", "show"])
def test_a_commit_argument_is_never_an_option_of_git(repo: Path, tmp_path: Path, verb: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x\n")
    with pytest.raises(GitFailed) as caught:
        Git(repo).out(verb, f"--output={precious}", "HEAD")
    assert f"would write {precious}" in caught.value.message
    assert precious.read_text() == "x\n"


def test_an_identity_that_only_the_environment_gives_is_taken(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.home() / ".gitconfig").unlink()
    assert survey(repo).identity is None
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ana")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ana@example.org")
    assert survey(repo).identity == ("Ana", "ana@example.org")


@pytest.mark.parametrize("name", ["(detached", "feature/x", "ümlaut"])
def test_a_worktree_snapshot_has_branch_commit_and_changes_together(repo: Path, name: str) -> None:
    git(repo, "checkout", "-q", "-b", name)
    git(repo, "tag", name)
    (repo / "new").touch()
    state = read_work_tree(Git(repo))
    assert (state.head, state.branch, state.changed) == (git(repo, "rev-parse", "HEAD"), name, ("new",))
    git(repo, "checkout", "-q", "--detach")
    assert read_work_tree(Git(repo)).branch is None


def test_the_identity_is_the_one_that_git_knows_now(repo: Path) -> None:
    runner = Git(repo)
    for name, email in (("Ana", "ana@example.org"), ("Bj\xf6rn", "b@example.org"), ("", "")):
        git(repo, "config", "user.name", name)
        git(repo, "config", "user.email", email)
        assert runner.identity() == ((name, email) if name else FALLBACK_IDENTITY)
    (repo / "included").write_text("[user]\n\tname = Eve\n\temail = eve@example.org\n")
    git(repo, "config", "include.path", str(repo / "included"))
    assert runner.identity() == ("Eve", "eve@example.org")


def test_filters_and_merge_drivers_of_the_person_run(repo: Path) -> None:
    commit_all(repo, "attributes", {".gitattributes": "*.txt filter=x merge=x\n", "a.txt": "one\n"})
    git(repo, "config", "filter.x.clean", "tr a-z A-Z")
    git(repo, "config", "merge.x.driver", "echo merged > %A")
    (repo / "a.txt").write_text("two\n")
    Git(repo).out("add", "a.txt")
    assert git(repo, "show", ":a.txt") == "TWO"
    git(repo, "commit", "-q", "-m", "ours")
    git(repo, "switch", "-q", "-c", "other", "HEAD~")
    (repo / "a.txt").write_text("three\n")
    git(repo, "commit", "-qam", "theirs")
    commit = candidates.build_candidate(
        Git(repo), git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "main"), "Merge t: x", "t"
    )
    assert git(repo, "show", f"{commit}:a.txt") == "merged"


@pytest.fixture
def missed(repo: Path, tmp_path: Path) -> Path:
    """The file of a worktree that another git makes: it is there and has no text yet."""
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    path = repo / ".git" / "worktrees" / "other" / "commondir"
    path.write_text("")
    return path


LISTING = [("for-each-ref", "--format=%(worktreepath)"), ("worktree", "list"), ("branch", "-D", "left")]


@pytest.mark.parametrize("words", LISTING, ids=lambda words: " ".join(words))
def test_git_waits_for_a_worktree_that_is_being_added(
    repo: Path, missed: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    git(repo, "update-ref", "refs/heads/left", "HEAD")
    monkeypatch.setattr("liza.git.runner.time.sleep", lambda seconds: missed.write_text("../..\n"))
    Git(repo).out(*words)
    assert missed.read_text() == "../..\n"


def test_a_worktree_that_is_never_finished_is_an_error(
    repo: Path, missed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liza.git.runner._ADD_LIMIT", 0.1)
    with pytest.raises(GitFailed, match=f"failed to read .*{missed.name}"):
        Git(repo).out("worktree", "list")


def test_worktrees_are_listed_while_others_are_added(repo: Path, tmp_path: Path) -> None:
    add = f"for n in $(seq 40); do git worktree add -q --detach {tmp_path}/$0-$n || exit 1; done"
    adders = [subprocess.Popen(["sh", "-c", add, name], cwd=repo) for name in ("a", "b")]
    while any(adder.poll() is None for adder in adders):
        Git(repo).out("worktree", "list")
    assert [adder.wait() for adder in adders] == [0, 0]
