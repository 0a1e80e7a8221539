"""Programs written into the git configuration after the day of init do not run under Liza, and are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from liza.repo import config_pins
from liza.repo.config_pins import Pins
from liza.repo.hiding import brief_filter
from liza.repo.merge import merges
from liza.repo.runner import FALLBACK_IDENTITY, Git
from liza.repo.survey import list_changed_files, read_work_tree
from liza.rules.errors import GitFailed, LockTimeout, Missing
from liza.rules.paths import Paths
from liza.system.locks import lock_path
from tests.conftest import git


@pytest.fixture
def spy(repo: Path, tmp_path: Path) -> Path:
    """A program that leaves a mark and passes its input on; the repository sends every text file through x."""
    program = tmp_path / "spy"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/it-ran\ncat\n")
    program.chmod(0o755)
    (repo / ".gitattributes").write_text("*.txt filter=x diff=x merge=x\n")
    (repo / "a.txt").write_text("one\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "attributes")
    return program


def ran(spy: Path) -> bool:
    mark = spy.parent / "it-ran"
    there = mark.exists()
    mark.unlink(missing_ok=True)
    return there


def diverge(repo: Path) -> tuple[str, str]:
    """Two commits that change different lines of one file."""
    (repo / "a.txt").write_text("".join(f"{n}\n" for n in range(20)))
    git(repo, "commit", "-qam", "base")
    base = git(repo, "rev-parse", "HEAD")
    tips = []
    for line in (1, 18):
        git(repo, "checkout", "-q", "--detach", base)
        (repo / "a.txt").write_text("".join("x\n" if n == line else f"{n}\n" for n in range(20)))
        git(repo, "commit", "-qam", f"line {line}")
        tips.append(git(repo, "rev-parse", "HEAD"))
    git(repo, "checkout", "-q", "main")
    return tips[0], tips[1]


def test_a_planted_filter_runs_in_plain_git_and_does_not_run_in_ours(repo: Path, spy: Path) -> None:
    runner = Git(repo, Pins.capture(Git(repo)))
    for verb in ("clean", "smudge"):
        git(repo, "config", f"filter.x.{verb}", str(spy))
    git(repo, "config", "filter.x.required", "true")
    (repo / "a.txt").write_text("two\n")
    git(repo, "status")
    assert ran(spy), "without the defence the planted filter runs in a mere status"
    assert list_changed_files(runner) == ("a.txt",)
    runner.out("add", "-A")
    runner.out("checkout", "-f", "HEAD", "--", "a.txt")
    assert not ran(spy)
    assert (repo / "a.txt").read_text() == "one\n"


def test_a_planted_process_filter_does_not_run_either(repo: Path, spy: Path) -> None:
    runner = Git(repo, Pins.capture(Git(repo)))
    git(repo, "config", "filter.x.process", str(spy))
    (repo / "a.txt").write_text("two\n")
    runner.out("add", "-A")
    assert not ran(spy)
    assert runner.out("show", ":a.txt") == "two"


def test_a_filter_planted_after_the_runner_began_is_seen_at_the_next_call(repo: Path, spy: Path) -> None:
    runner = Git(repo, Pins.capture(Git(repo)))
    runner.out("status")
    git(repo, "config", "filter.x.clean", str(spy))
    (repo / "a.txt").write_text("two\n")
    runner.out("status")
    assert not ran(spy)


def test_a_planted_merge_driver_does_not_run_and_loses_neither_side(repo: Path, spy: Path) -> None:
    ours, theirs = diverge(repo)
    runner = Git(repo, Pins.capture(Git(repo)))
    git(repo, "config", "merge.x.driver", f"{spy} %A %O %B < /dev/null")
    made = merges.build_candidate(runner, theirs, ours, "Merge t: x", "t")
    assert not ran(spy)
    lines = runner.out("show", f"{made}:a.txt").splitlines()
    assert (lines[1], lines[18]) == ("x", "x")


def test_planted_text_conversions_and_external_diffs_do_not_run(repo: Path, spy: Path) -> None:
    runner = Git(repo, Pins.capture(Git(repo)))
    git(repo, "config", "diff.x.textconv", str(spy))
    git(repo, "config", "diff.external", str(spy))
    (repo / "a.txt").write_text("two\n")
    assert "+two" in runner.out("diff")
    assert "+one" in runner.out("log", "-p", "-1")
    assert not ran(spy)


def test_what_is_planted_in_a_works_own_configuration_and_in_an_included_file_is_blanked_too(
    repo: Path, spy: Path, tmp_path: Path
) -> None:
    git(repo, "config", "extensions.worktreeConfig", "true")
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "slot"))
    pins = Pins.capture(Git(repo))
    inside = Git(repo, pins).with_git_dir(tmp_path / "slot", repo / ".git" / "worktrees" / "slot")
    inside.out("status")
    git(tmp_path / "slot", "config", "--worktree", "filter.x.clean", str(spy))
    (tmp_path / "slot" / "a.txt").write_text("two\n")
    inside.out("status")
    assert not ran(spy)
    git(tmp_path / "slot", "config", "--worktree", "--unset", "filter.x.clean")
    evil = tmp_path / "evil.conf"
    git(repo, "config", "includeIf.onbranch:main.path", str(evil))
    evil.write_text("")
    runner = Git(repo, pins)
    runner.out("status")
    evil.write_text(f'[filter "x"]\n\tclean = {spy}\n')
    (repo / "a.txt").write_text("two\n")
    runner.out("status")
    assert not ran(spy)
    assert any("includeif" in line for line in pins.violation_messages(Git(repo)))


def test_what_was_there_at_init_goes_on_working_and_a_changed_value_is_turned_back(
    repo: Path, spy: Path, tmp_path: Path
) -> None:
    git(repo, "config", "filter.x.clean", "tr a-z A-Z")
    Pins.capture(Git(repo)).save(Paths(tmp_path))
    pins = Pins.load(Paths(tmp_path).pins)
    assert pins == Pins.capture(Git(repo))
    git(repo, "config", "filter.x.clean", str(spy))
    (repo / "a.txt").write_text("two\n")
    Git(repo, pins).out("add", "a.txt")
    assert not ran(spy)
    assert Git(repo).out("show", ":a.txt") == "TWO"


def test_pins_are_not_written_while_another_process_changes_them(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_pins, "LOCK_TIMEOUT", 0)
    paths = Paths(tmp_path)
    with lock_path(paths.pins_lock), pytest.raises(LockTimeout):
        Pins.capture(Git(repo)).save(paths)
    assert not paths.pins.exists()
    Pins.capture(Git(repo)).save(paths)
    assert Pins.load(paths.pins) == Pins.capture(Git(repo))


def test_a_process_planted_over_a_pinned_filter_is_refused_not_silently_skipped(repo: Path, spy: Path) -> None:
    git(repo, "config", "filter.x.clean", "tr a-z A-Z")
    runner = Git(repo, Pins.capture(Git(repo)))
    git(repo, "config", "filter.x.process", str(spy))
    with pytest.raises(GitFailed, match=r"filter\.x\.process was added"):
        runner.out("status")
    assert not ran(spy)


def test_our_own_filter_taken_out_of_the_configuration_is_laid_over_and_reported(repo: Path) -> None:
    brief_filter.install_filter(Git(repo))
    pins = Pins.capture(Git(repo))
    git(repo, "config", "--remove-section", "filter.liza-brief")
    assert Git(repo, pins).out("config", brief_filter.FILTER_KEY)
    assert pins.violation_messages(Git(repo)) == (f"git configuration {brief_filter.FILTER_KEY} was removed",)


def test_an_upgraded_filter_is_pinned_anew_and_nothing_else_is(repo: Path, spy: Path) -> None:
    brief_filter.install_filter(Git(repo))
    old = Pins.capture(Git(repo))
    brief_filter.install_filter(Git(repo), ("/new/python", "/new/_filter.py"))
    git(repo, "config", "filter.x.clean", str(spy))
    new = old.with_key(Git(repo), brief_filter.FILTER_KEY)
    assert new.violation_messages(Git(repo)) == (f"git configuration filter.x.clean = '{spy}'",)


def test_the_alert_names_keys_and_hooks_and_not_harmless_settings(repo: Path, spy: Path) -> None:
    pins = Pins.capture(Git(repo))
    assert pins.violation_messages(Git(repo)) == ()
    git(repo, "config", "core.fsmonitor", "true")
    git(repo, "config", "alias.st", "status")
    git(repo, "config", "submodule.lib.update", "rebase")
    git(repo, "config", "branch.main.remote", "origin")
    assert pins.violation_messages(Git(repo)) == ()
    git(repo, "config", "core.sshCommand", str(spy))
    git(repo, "config", "alias.ci", "!evil")
    hook = repo / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    found = pins.violation_messages(Git(repo))
    assert [line.split(" = ")[0] for line in found] == [
        "git configuration alias.ci",
        "git configuration core.sshcommand",
        "git hook post-commit",
    ]


def test_pins_that_cannot_be_read_are_an_error_and_not_no_pins(tmp_path: Path) -> None:
    odd = ({"reviewed": 5}, {"reviewed": {"*": "x"}}, {"settings": [3]}, {"settings": {"integration_timeout": "soon"}})
    shaped = [json.dumps({"config": {}, "hooks": {}, **one}) for one in odd]
    for text in (None, "{", '{"config": []}', *shaped):
        if text is not None:
            (tmp_path / "pins.json").write_text(text)
        with pytest.raises(Missing):
            Pins.load(tmp_path / "pins.json")


def configuration_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories in which git is asked for the whole configuration, from now on."""
    asked: list[Path] = []
    real = config_pins._read_rows

    def read(runner: Git, *scopes: object) -> object:
        asked.append(runner.directory)
        return real(runner, *scopes)  # type: ignore[arg-type]

    monkeypatch.setattr(config_pins, "_read_rows", read)
    return asked


def test_the_configuration_is_read_once_for_worktrees_that_share_it_and_again_for_one_with_its_own(
    repo: Path, spy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repo, "config", "extensions.worktreeConfig", "true")
    trees = {name: tmp_path / name for name in ("plain", "own")}
    for name, tree in trees.items():
        git(repo, "worktree", "add", "-q", "-b", name, str(tree))
    pins = Pins.capture(Git(repo))
    git(trees["own"], "config", "--worktree", "filter.x.clean", str(spy))
    asked = configuration_reads(monkeypatch)

    def at(tree: Path, name: str | None) -> Git:
        git_dir = repo / ".git" / "worktrees" / name if name else repo / ".git"
        return Git(repo, pins).with_git_dir(tree, git_dir, repo / ".git")

    for tree in trees.values():
        (tree / "a.txt").write_text("two\n")
    list_changed_files(at(repo, None))
    assert list_changed_files(at(trees["plain"], "plain")) == ("a.txt",)
    assert list_changed_files(at(trees["own"], "own")) == ("a.txt",)
    assert not ran(spy), "the filter in a worktree's own configuration ran"
    assert asked == [repo, trees["own"]]
    git(repo, "config", "filter.x.clean", str(spy))
    (trees["plain"] / "a.txt").write_text("three\n")
    assert list_changed_files(at(trees["plain"], "plain")) == ("a.txt",)
    assert not ran(spy), "the filter that was added later ran"
    assert asked == [repo, trees["own"], trees["plain"]]


def test_a_thread_that_reads_another_worktree_meanwhile_does_not_disturb(
    repo: Path, spy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repo, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    pins = Pins.capture(Git(repo))
    list_changed_files(Git(repo, pins).with_git_dir(repo, repo / ".git", repo / ".git"))
    compare = config_pins._existing_files

    def compare_beside_thread(*given: Any) -> Any:
        pins._cache[str(len(pins._cache))] = config_pins._ConfigCache(())
        return compare(*given)

    monkeypatch.setattr(config_pins, "_existing_files", compare_beside_thread)
    git(repo, "config", "user.name", "Bob")
    list_changed_files(Git(repo, pins).with_git_dir(tmp_path / "other", repo / ".git/worktrees/other", repo / ".git"))


@pytest.mark.parametrize("name", ["(detached", "feature/x", "ümlaut"])
def test_branch_commit_and_changes_of_a_worktree_are_those_of_one_moment(repo: Path, name: str) -> None:
    git(repo, "checkout", "-q", "-b", name)
    git(repo, "tag", name)
    (repo / "new").touch()
    state = read_work_tree(Git(repo))
    assert (state.head, state.branch, state.changed) == (git(repo, "rev-parse", "HEAD"), name, ("new",))
    git(repo, "checkout", "-q", "--detach")
    assert read_work_tree(Git(repo)).branch is None


def test_the_pins_know_the_identity_that_git_knows_now(repo: Path) -> None:
    runner = Git(repo, Pins.capture(Git(repo)))
    for name, email in (("Ana", "ana@example.org"), ("Bj\xf6rn", "b@example.org"), ("", "")):
        git(repo, "config", "user.name", name)
        git(repo, "config", "user.email", email)
        assert runner.identity() == Git(repo).identity() == ((name, email) if name else FALLBACK_IDENTITY)
    (repo / "included").write_text("[user]\n\tname = Eve\n\temail = eve@example.org\n")
    git(repo, "config", "include.path", str(repo / "included"))
    assert runner.identity() == Git(repo).identity() == ("Eve", "eve@example.org")
    (repo / "included").write_text("[user]\n\tname = Zoe\n\temail = zoe@example.org\n")
    assert runner.identity() == Git(repo).identity() == ("Zoe", "zoe@example.org")


@pytest.mark.parametrize("key", ["credential.helper", "credential.https://forge.example.helper"])
def test_a_planted_credential_helper_is_not_asked_beside_the_persons_own(repo: Path, tmp_path: Path, key: str) -> None:
    """Helpers are a list: the pinned value alone would be added to it, after the planted one."""
    helper = "!f() {{ cat > {}; }}; f"
    git(repo, "config", "--global", "credential.helper", helper.format(tmp_path / "own"))
    runner = Git(repo, Pins.capture(Git(repo)))
    git(repo, "config", key, helper.format(tmp_path / "planted"))
    runner.run("credential", "approve", stdin="protocol=https\nhost=forge.example\nusername=me\npassword=secret\n")
    assert "password=secret" in (tmp_path / "own").read_text()
    assert not (tmp_path / "planted").exists()
