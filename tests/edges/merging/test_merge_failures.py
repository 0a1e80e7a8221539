"""A merge that fails leaves a mark on its task, is reported, and keeps no other task from being merged."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liza.alarms.alarm_log import check_alarms
from liza.board.text.values import to_plain
from liza.config import confirmed_settings
from liza.crew import logged_alarms
from liza.crew.crew import Crew, find_crew
from liza.git import candidates, git_refs
from liza.git.runner import Git
from liza.landing.sync import sync
from liza.merging import candidate_tests as candidate
from liza.merging import merge_outcomes
from liza.merging.merge import merge
from liza.merging.rules import epic_rules
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import gates
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.errors import GitFailed, LizaError, LockTimeout, Missing, NotRegularFile, Refused, WriteFailed
from liza.model.model import State
from liza.printing import render_task
from liza.recovery.doctor import doctor
from liza.recovery.recover import recover_crew
from liza.system import files
from liza.system.files import MAX_BOARD_SIZE
from liza.system.locks import Lock
from liza.tasks import draft_specs
from liza.tasks.claim import claim
from liza.tasks.diff import diff
from liza.tasks.verdict import verdict
from liza.view import task_rows
from tests.campaign import forks
from tests.conftest import FakeClock, commit_all, git, variant
from tests.edges.merge_crew import Merges, prepared


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a crew, made once and copied for each test."""
    with prepared(tmp_path_factory, ignored="generated/\ncache/\n") as root:
        return root


def squash(there: Path) -> None:
    """What an agent does that squashes with an orphan branch."""
    name = git(there, "symbolic-ref", "--short", "HEAD")
    git(there, "checkout", "-q", "--orphan", "squashed")
    git(there, "commit", "-q", "-m", "squashed")
    git(there, "branch", "-q", "-M", "squashed", name)


def collect(root: Path) -> None:
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")


def test_submitting_unrelated_history_is_refused_with_the_next_step(
    crew: Merges,
) -> None:
    there = crew.claimed("a")
    squash(there)
    with pytest.raises(Refused, match="no commit in common with integration") as refused:
        crew.submitted(there)
    git(there, *refused.value.hint.split()[1:])
    crew.submitted(there)
    assert crew.status("a") == "READY_FOR_REVIEW"


@pytest.mark.campaign
def test_a_task_of_unrelated_history_returns_to_its_coder(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        # As on a board that was written before submit asked for that.
        patch.setattr(git_refs, "find_merge_base", lambda *words: "")
        crew.approved("a", work=squash)
    crew.approved("b")
    assert crew.merge() == ""
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert "no commit in common with integration" in crew.failure("a")
    assert "unrelated histories" in crew.failure("a")
    assert "a does not merge" in crew.alarms().get("integration_failed", "")
    assert crew.status("b") == "MERGED"
    with pytest.raises(LizaError, match="no common commit"):
        diff(crew.crew, "a")


@pytest.mark.campaign
def test_a_commit_under_review_survives_an_amend_and_gc(crew: Merges) -> None:
    there = crew.approved("a")
    commit = crew.task("a").review_commit
    git(there, "commit", "-q", "--amend", "-m", "again")
    collect(crew.root)
    assert git_refs.list_reviewed(crew.crew.git) == {"a": commit}
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"
    assert git_refs.list_reviewed(crew.crew.git) == {}


def test_recovery_keeps_reviewed_commits_that_had_no_refs(crew: Merges) -> None:
    crew.approved("a")
    git(crew.root, "update-ref", "-d", git_refs.review_ref("a"))
    recover_crew(crew.crew, "doctor")
    assert git_refs.list_reviewed(crew.crew.git) == {"a": crew.task("a").review_commit}


@pytest.mark.campaign
def test_a_task_whose_reviewed_commit_vanished_returns_to_its_coder(crew: Merges) -> None:
    there = crew.approved("a")
    crew.approved("b")
    git(there, "commit", "-q", "--amend", "-m", "again")
    git(crew.root, "update-ref", "-d", git_refs.review_ref("a"))
    collect(crew.root)
    assert crew.merge() == ""
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert "is not in the repository any more" in crew.failure("a")
    assert crew.status("b") == "MERGED"


@pytest.mark.campaign
def test_a_failure_in_the_checkout_repeats_no_tests(crew: Merges, tmp_path: Path) -> None:
    """git-lfs without its server, for one: the files of the checkout cannot be brought along."""
    count, broken = tmp_path / "count", tmp_path / "broken"
    crew.tests(f"echo x >> {count}")
    smudge = f'test "$PWD" != {crew.root} -o ! -e {broken} && cat'
    git(crew.root, "config", "filter.slow.smudge", smudge)
    git(crew.root, "config", "filter.slow.clean", "cat")
    git(crew.root, "config", "filter.slow.required", "true")
    git(crew.root, "switch", "-q", "integration")
    broken.touch()

    def big(there: Path) -> None:
        commit_all(there, "large", {".gitattributes": "*.big filter=slow\n", "x.big": "large\n"})

    crew.approved("a", work=big)
    crew.approved("b")
    # Which task of a batch causes such a failure is unknown: each is merged alone, at once.
    assert "could not be updated" in crew.merge()
    assert [(crew.status(task), crew.task(task).set_aside.until) for task in ("a", "b")] == [("APPROVED", None)] * 2  # type: ignore[union-attr]
    assert "could not be updated" in crew.merge()
    aside = crew.task("a").set_aside
    assert aside is not None
    assert aside.until is not None
    assert (crew.status("a"), aside.tries, aside.kind) == ("APPROVED", 2, "failed")
    told = crew.alarms().get("merge_set_aside", "")
    assert "x.big" in told
    assert told.endswith(f"→ git -C {crew.root} status && liza merge a")
    assert any("could not be merged" in one.text and not one.ok for one in doctor(crew.root).findings)

    assert crew.merge() == ""
    assert (crew.status("a"), crew.status("b")) == ("APPROVED", "MERGED")
    assert "set aside: a" in crew.merge()
    assert "could not be updated" in crew.merge("a")
    assert crew.task("a").set_aside.tries == 3  # type: ignore[union-attr]
    broken.unlink()
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"
    assert (crew.root / "x.big").read_text() == "large\n"
    assert git(crew.root, "status", "--porcelain") == ""
    # Both together, a alone, b, and a again on that with b: the repeated tries tested nothing.
    assert len(count.read_text().split()) == 4


@pytest.mark.campaign
def test_a_locked_absent_checkout_of_integration_holds_merges(crew: Merges, tmp_path: Path) -> None:
    drive, away = tmp_path / "usb", tmp_path / "away"
    git(crew.root, "worktree", "add", "-q", str(drive), "integration")
    git(crew.root, "worktree", "lock", str(drive))
    drive.rename(away)
    crew.approved("a")
    tip = crew.tip()
    with pytest.raises(Missing, match="locked and absent") as refused:
        merge(crew.crew, "a")
    assert refused.value.hint == f"git worktree unlock {drive}"
    assert (crew.tip(), crew.status("a")) == (tip, "APPROVED")
    git(crew.root, "worktree", "unlock", str(drive))
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"


def unprivileged(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``liza`` for whom permissions count, also where root runs the tests."""
    liza = Path(sys.executable).parent / "liza"
    less = ("-dac_override", "-dac_read_search", "-fowner")
    drop = ["setpriv", "--bounding-set", ",".join(less), "--inh-caps", "-all"] if os.geteuid() == 0 else []
    return subprocess.run([*drop, str(liza), *words], cwd=root, capture_output=True, text=True, check=False, timeout=90)


needs_setpriv = pytest.mark.needs(*(["setpriv"] if os.geteuid() == 0 else []))
"""For root permissions do not count: setpriv gives that up."""


@pytest.mark.campaign
@needs_setpriv
def test_read_only_directories_of_tests_are_removed_before_merges(
    crew: Merges,
) -> None:
    crew.tests("mkdir -p mod/x && touch mod/x/f && chmod -R a-w mod")
    crew.approved("a", "b")
    for task in ("a", "b"):
        done = unprivileged(crew.root, "merge", task)
        assert (done.returncode, crew.status(task)) == (0, "MERGED"), done.stderr


@pytest.mark.campaign
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another's files")
@needs_setpriv
@pytest.mark.parametrize("slot", ["merge", variant("s1")])
def test_foreign_files_in_a_slot_name_the_freeing_command(crew: Merges, slot: str) -> None:
    crew.approved("a", "b")
    assert unprivileged(crew.root, "merge", "a").returncode == 0
    foreign = crew.crew.paths.slot(slot) / "of-docker"
    foreign.mkdir()
    (foreign / "f").write_text("x\n")
    os.chown(foreign, 65534, 65534)
    foreign.chmod(0o755)
    if slot == "merge":
        words: tuple[str, ...] = ("merge", "b")
    else:
        done = unprivileged(crew.root, "task", "add", "--id", "c", "--desc", "c", "--done", "c", "--scope", "c",
                            "--spec", "README.md")  # fmt: skip
        assert done.returncode == 0, done.stderr
        words = ("claim", "c", "--agent", "coder-1")
    done = unprivileged(crew.root, *words)
    assert "sudo chown -R" in done.stdout + done.stderr + str(crew.alarms())
    assert (foreign / "f").read_text() == "x\n"
    shutil.rmtree(foreign)
    assert unprivileged(crew.root, *words).returncode == 0


KILLS = 'kill -9 $(cut -d" " -f1 "$HERE/.liza/merge.lock")'


def killed(crew: Merges, task: str) -> bool:
    return forks.run(lambda: merge(crew.crew, task), quiet=crew.check.with_name("said")) == -signal.SIGKILL


def test_a_red_candidate_its_tests_published_is_never_merged(
    crew: Merges,
) -> None:
    crew.tests(f"[ -f a.txt ] || exit 0; git update-ref refs/heads/integration HEAD; {KILLS}; exit 1")
    crew.approved("a")
    start = crew.tip()
    for death in (1, 2, 3):
        assert killed(crew, "a")
        assert crew.tip() != start
        recover_crew(crew.crew, "doctor")
        assert crew.tip() == start
        assert crew.task("a").tested is None
        assert ("merge_set_aside" in crew.alarms()) == (death == 2)
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert "its merger died before the tests" in crew.failure("a")
    assert f"it was put back to {start[:10]}" in crew.failure("a")
    assert crew.alerts().count("untested_integration") == 3
    crew.approved("b")
    assert crew.merge("b") == ""
    assert crew.status("b") == "MERGED"


@pytest.mark.parametrize("forged", ["on the board", variant("as a ref")])
def test_a_green_result_recorded_in_one_place_merges_nothing(crew: Merges, forged: str) -> None:
    crew.tests(f"[ -f a.txt ] || exit 0; {KILLS}; exit 1")
    crew.approved("a")
    assert killed(crew, "a")
    made = crew.task("a").merging
    assert made is not None
    if forged == "as a ref":
        git_refs.write_tested_refs(crew.crew.git, ("a",), made.candidate)
    else:
        from msgspec.structs import replace

        with crew.crew.change("human:somebody", "edit") as tx:
            tx.state = tx.state.with_task(replace(crew.task("a"), merging=replace(made, tested=True)))
    git(crew.root, "update-ref", "refs/heads/integration", made.candidate)
    crew.tests("[ ! -f a.txt ]")
    crew.merge("a")
    assert (crew.status("a"), crew.tip()) == ("INTEGRATION_FAILED", made.expected)


@pytest.mark.campaign
def test_candidate_written_onto_the_board_is_tested_before_its_offer(
    crew: Merges,
) -> None:
    from msgspec.structs import replace

    from liza.model.model import MergeInProgress

    crew.tests("exit 1")
    crew.approved("a")
    commit, tip = crew.task("a").review_commit, crew.tip()
    forged = candidates.build_candidate(crew.crew.git, str(commit), tip, "Merge a: x", "a")
    with crew.crew.change("human:somebody", "edit") as tx:
        digest = gates.gates_digest(tx.state.config, tx.state.config.integration_branch)
        waits = MergeInProgress(candidate=forged, expected=tip, waiting=("README.md",), tested=True, gates=digest)
        tx.state = tx.state.with_task(replace(crew.task("a"), merging=waits))
    crew.merge("a")
    assert (crew.status("a"), crew.tip()) == ("INTEGRATION_FAILED", tip)


@pytest.mark.parametrize("point", ["merge.noted", variant("merge.passed"), variant("merge.advanced")])
def test_a_killed_mergers_green_candidate_is_published_without_new_tests(
    crew: Merges, tmp_path: Path, point: str
) -> None:
    count = tmp_path / "count"
    crew.tests(f"echo x >> {count}")
    crew.approved("a")
    assert forks.run(lambda: merge(crew.crew, "a"), point) == -signal.SIGKILL
    assert crew.merge("a") == ""
    task = crew.task("a")
    assert (task.status, task.tested, task.merge_commit) == ("MERGED", True, crew.tip())
    assert len(count.read_text().split()) == (2 if point == "merge.noted" else 1)


@pytest.mark.campaign
def test_tests_publishing_their_green_candidate_merge_it_once(crew: Merges) -> None:
    crew.tests("[ ! -f a.txt ] || git update-ref refs/heads/integration HEAD; git tag -f tested > /dev/null")
    crew.approved("a")
    start = crew.tip()
    assert crew.merge("a") == ""
    assert (crew.status("a"), crew.task("a").tested) == ("MERGED", True)
    assert git(crew.root, "rev-list", "--count", "--merges", f"{start}..integration") == "1"
    assert "the tests of a moved refs/heads/integration, refs/tags/tested" in crew.alerts()
    told = [one.detail for one in crew.task("a").history if one.event == "tests moved refs"]
    assert told == ["refs/heads/integration, refs/tags/tested"]
    assert "integration_moved" not in crew.alarms()


@pytest.mark.campaign
def test_integration_moved_by_red_tests_is_restored_and_reported(
    crew: Merges,
) -> None:
    crew.tests("[ ! -f a.txt ] || { git update-ref refs/heads/integration HEAD; exit 1; }")
    crew.approved("a")
    crew.approved("b")
    start = crew.tip()
    assert crew.merge("a") == ""
    assert (crew.status("a"), crew.tip()) == ("INTEGRATION_FAILED", start)
    assert "the tests of a moved refs/heads/integration" in crew.alerts()
    assert crew.merge("b") == ""
    assert crew.status("b") == "MERGED"


@pytest.mark.campaign
def test_changes_by_agents_and_people_are_not_blamed_on_tests(crew: Merges) -> None:
    crew.claimed("other", "coder-2")
    mine = 'git -C "$HERE" commit -q --allow-empty -m mine'
    crew.tests(f'{mine}; git -C "$HERE.worktrees/tasks/other" commit -q --amend -m again')
    crew.approved("a")
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"
    assert "tests_moved_refs" not in crew.alerts()


MOVES = """\
cd "$HERE"
git update-ref refs/heads/integration "$(git commit-tree -m mine -p integration 'integration^{tree}')"
"""


@pytest.mark.campaign
def test_merge_overtaken_by_integration_is_set_aside_after_some_rounds(crew: Merges) -> None:
    crew.tests(f"[ ! -f a.txt ] || {{ {MOVES} }}")
    crew.approved("a")
    crew.approved("b")
    assert "integration moved 3 times while the tests of a ran" in crew.merge()
    assert crew.alarms().get("merge_set_aside", "").endswith("→ liza merge a")
    assert crew.task("a").set_aside.kind == "integration moves"  # type: ignore[union-attr]
    assert crew.merge() == ""
    assert (crew.status("a"), crew.status("b")) == ("APPROVED", "MERGED")
    crew.tests("exit 0")
    assert crew.merge("a") == ""
    assert (crew.status("a"), crew.task("a").set_aside) == ("MERGED", None)


@pytest.mark.campaign
def test_no_task_is_blamed_for_integration_others_made_red(crew: Merges) -> None:
    crew.tests("[ ! -f broken.txt ]")
    crew.approved("a")
    start = crew.tip()
    git(crew.root, "switch", "-q", "integration")
    commit_all(crew.root, "mine", {"broken.txt": "x\n"})
    assert "integration is red without a" in crew.merge()
    assert crew.status("a") == "APPROVED"
    assert "integration is red without a" in crew.alarms().get("merge_set_aside", "")
    assert "integration_moved" in crew.alarms()
    git(crew.root, "reset", "-q", "--keep", start)
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"


def merge_when_due(crew: Merges, clock: FakeClock) -> str:
    """What the merger of a supervisor does when the next try is due; what it failed with, or nothing."""
    clock.advance(max(0.0, (crew.crew.clock.now() - clock.now()).total_seconds()))
    clock.advance(epic_rules.seconds_to_next_try(crew.crew.board.read(), clock.now()) or 0.0)
    try:
        merge(find_crew(crew.root, clock), supervisor="coder-1")
    except LizaError as error:
        return error.message
    return ""


def bad(there: Path) -> None:
    """What a task does whose tests fail."""
    commit_all(there, "bad", {f"bad-{there.name}.txt": "BAD\n"})


SERVICE = 'echo "$(ls | tr "\\n" " ")" >> "$HERE.runs"; [ -f "$HERE.service" ] || { echo "no service"; exit 1; }'


@pytest.mark.campaign
def test_an_outside_cause_is_charged_to_one_task_at_most(crew: Merges, clock: FakeClock) -> None:
    service, runs = Path(f"{crew.root}.service"), Path(f"{crew.root}.runs")
    crew.tests(SERVICE)
    service.touch()
    crew.approved("good")
    assert crew.merge() == ""
    service.unlink()
    crew.approved("a", "b", "c")
    assert crew.merge("a") == ""
    assert crew.status("a") == "INTEGRATION_FAILED"
    tested = len(runs.read_text().splitlines())
    message = merge_when_due(crew, clock)
    assert "integration is red without any task (tests): sh " in message
    assert "no service" in message
    assert len(runs.read_text().splitlines()) == tested + 3, "the batch once, and integration alone with its retry"
    assert {crew.status(name) for name in "abc"} == {"APPROVED"}
    assert [event.event for event in crew.task("a").history][-2:] == ["merge failed", "merge cleared"]
    alarm = crew.alarms()["merge_set_aside"]
    assert "nothing is merged into integration until it is green" in alarm
    assert alarm.endswith("→ liza merge b")
    for _ in range(3):
        assert "integration is red without any task" in merge_when_due(crew, clock)
    tested = len(runs.read_text().splitlines())
    assert "integration is red without any task" in merge_when_due(crew, clock)
    assert len(runs.read_text().splitlines()) == tested + 1, "each task was tried, so integration alone is tested"
    assert {crew.status(name) for name in "abc"} == {"APPROVED"}
    service.touch()
    assert merge_when_due(crew, clock) == ""
    assert {crew.status(name) for name in "abc"} == {"MERGED"}
    assert "merge_set_aside" not in crew.alarms()


@pytest.mark.campaign
def test_a_coder_submits_again_what_an_outside_cause_made_red(crew: Merges, clock: FakeClock) -> None:
    service = Path(f"{crew.root}.service")
    crew.tests(SERVICE)
    there = crew.approved("a")
    assert crew.merge("a") == ""
    claim(crew.crew, "coder-1", "a")
    with pytest.raises(Refused, match="is the commit that was sent back"):
        crew.submitted(there)
    crew.submitted(crew.claimed("b", "coder-2"))
    verdict(crew.crew, "approve", "fine", task_id="b")
    assert "integration is red without any task" in merge_when_due(crew, clock)
    assert (crew.status("a"), crew.task("a").history[-1].event) == ("CLAIMED", "merge cleared")
    crew.submitted(there)
    verdict(crew.crew, "approve", "fine", task_id="a")
    service.touch()
    assert merge_when_due(crew, clock) == ""
    assert {crew.status(name) for name in "ab"} == {"MERGED"}


@pytest.mark.campaign
@pytest.mark.parametrize("how", ["due", variant("named")])
def test_a_task_that_makes_a_red_integration_green_is_merged(crew: Merges, clock: FakeClock, how: str) -> None:
    crew.tests("[ -f fix.txt ]")
    crew.approved("a", "b")
    assert crew.merge("a") == ""
    assert "integration is red without any task" in merge_when_due(crew, clock)
    crew.approved("fix")
    if how == "named":
        assert crew.merge("fix") == ""
    else:
        for _ in range(3):
            merge_when_due(crew, clock)
    assert crew.status("fix") == "MERGED"
    merge_when_due(crew, clock)
    assert {crew.status(name) for name in ("a", "b")} == {"MERGED"}


@pytest.mark.parametrize("others", [0, variant(1)])
def test_a_task_red_on_a_green_branch_is_blamed(crew: Merges, others: int) -> None:
    crew.tests("! ls bad-*.txt 2> /dev/null")
    for name in ("a", "b", "c")[: 2 + others]:
        crew.approved(name, work=bad)
        assert crew.merge(name) == ""
        assert crew.status(name) == "INTEGRATION_FAILED"
    assert {event.event for event in crew.task("a").history}.isdisjoint({"merge cleared"})


DIRTY = """\
[ ! -f bad.txt ] || { mkdir -p generated cache; touch generated/flag cache/kept; exit 1; }
[ ! -f needs.txt ] || test -f generated/flag
"""


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, "INTEGRATION_FAILED"),
        variant({"merge_clean": "always"}, "INTEGRATION_FAILED"),
        ({"merge_clean": "never"}, "MERGED"),
        variant({"sandbox_keep": ("cache",)}, "INTEGRATION_FAILED"),
    ],
)
def test_files_from_a_red_candidate_never_make_others_green(
    crew: Merges, tmp_path: Path, settings: dict[str, object], status: str
) -> None:
    crew.configure(**settings)
    crew.tests(DIRTY)
    crew.approved("bad", "needs")
    crew.merge("bad")
    crew.merge("needs")
    assert (crew.status("bad"), crew.status("needs")) == ("INTEGRATION_FAILED", status)
    assert crew.clone_is_green(tmp_path / "clone") == (status != "MERGED")
    kept = crew.crew.paths.slot("merge") / "cache" / "kept"
    assert kept.exists() == ("sandbox_keep" in settings or status == "MERGED")


@pytest.mark.campaign
def test_files_of_a_green_candidate_are_removed_on_request(crew: Merges, tmp_path: Path) -> None:
    count = tmp_path / "set-ups"
    crew.configure(merge_clean="after_red", sandbox_setup=f"mkdir generated && echo x >> {count}")
    crew.tests("[ ! -f a.txt ] || touch generated/by-a; test -d generated")
    crew.approved("a", "b", "c")
    for task in ("a", "b"):
        assert crew.merge(task) == ""
    assert (crew.crew.paths.slot("merge") / "generated" / "by-a").exists()
    assert len(count.read_text().split()) == 1
    crew.configure(merge_clean="always")
    assert crew.merge("c") == ""
    assert [crew.status(task) for task in ("a", "b", "c")] == ["MERGED"] * 3
    assert len(count.read_text().split()) == 2


@pytest.mark.campaign
def test_a_crew_without_confirmed_settings_still_tests_its_candidates(crew: Merges) -> None:
    crew.tests("echo first; echo last; exit 1")
    crew.approved("a")
    confirmed_settings.create_pins(crew.crew.paths)
    assert crew.merge("a") == ""
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert crew.alarms()["integration_failed"].endswith("(log: .liza/logs/merge-a.log) → less .liza/logs/merge-a.log")
    shown = render_task.format_task(task_rows.show_task(crew.crew, "a"), False)
    assert "(log: .liza/logs/merge-a.log)\n            first\n            last\n" in shown
    crew.configure(restart_after_crash=1.0, integration_timeout=60)
    assert crew.crew.board.read().config.integration_command == f"sh {crew.check}"


def test_the_next_merger_removes_locks_of_a_killed_git(crew: Merges) -> None:
    there = crew.approved("a")
    place = crew.root / ".git" / "refs" / "liza"
    (place / "tested").mkdir()
    (place / "integration.lock").touch()
    for lock in (place / "integration.lock",):
        os.utime(lock, (0, 0))
    assert crew.merge("a") == ""
    assert (crew.status("a"), crew.crew.worktrees.owner(there.name)) == ("MERGED", None)
    assert list(place.rglob("*.lock")) == []


def test_git_reports_the_cause_without_advice_on_grafts(repo: Path) -> None:
    done = Git(repo).run("merge-base", "HEAD", "nowhere")
    assert done.stderr.splitlines() == ["fatal: Not a valid object name nowhere"]
    done = Git(repo).run("merge-tree", "--write-tree", "HEAD", "1" * 40)
    assert done.stderr.splitlines() == [f"merge-tree: {'1' * 40} - not something we can merge"]


def test_claim_whose_worktree_cannot_be_created_leaves_the_task_unclaimed(crew: Merges) -> None:
    from liza.tasks.claim import claim
    from liza.tasks.rules.backlog import TaskFields
    from liza.tasks.task import add

    add(crew.crew, [TaskFields("a", "Write", "it is there", "a.txt", "README.md")])
    # No branch task/… can be made beside a branch of that name.
    git(crew.root, "branch", "task")
    with pytest.raises(LizaError, match="task"):
        claim(crew.crew, "coder-1", "a")
    assert crew.status("a") == "UNCLAIMED"
    git(crew.root, "branch", "-D", "task")
    claim(crew.crew, "coder-1", "a")
    assert crew.status("a") == "CLAIMED"


@pytest.mark.campaign
@pytest.mark.parametrize(
    "act",
    [
        "git update-ref -d refs/heads/integration",
        variant("git branch -m integration integration-old"),
        "git update-ref refs/heads/integration integration~1",
        variant("git update-ref -d refs/heads/integration; exit 1"),
    ],
)
def test_tests_that_delete_integration_return_their_task_only(crew: Merges, act: str) -> None:
    crew.approved("before")
    assert crew.merge() == ""
    crew.tests(f"[ ! -f a.txt ] || {{ {act}; }}")
    crew.approved("a", "b")
    start = crew.tip()
    assert crew.merge("a") == ""
    assert (crew.status("a"), crew.tip()) == ("INTEGRATION_FAILED", start)
    words = (
        "refs/heads/integration moved, or disappeared, while the tests of a ran: the tests or another process did that"
    )
    assert words in crew.failure("a")
    assert words in crew.alerts(), "whoever it was, that is true"
    assert f"integration was put back to {start[:10]} (if you moved it, move it again" in crew.failure("a")
    assert crew.merge() == ""
    assert crew.status("b") == "MERGED"


@pytest.mark.campaign
def test_an_integration_deleted_by_killed_tests_is_restored(
    crew: Merges,
) -> None:
    crew.tests(f"[ -f a.txt ] || exit 0; git update-ref -d refs/heads/integration; {KILLS}; exit 1")
    crew.approved("a", "b")
    start = crew.tip()
    assert killed(crew, "a")
    assert crew.merge("b") == ""
    assert (crew.status("a"), crew.status("b")) == ("APPROVED", "MERGED")
    assert git(crew.root, "rev-parse", "integration~1") == start


@pytest.mark.campaign
@pytest.mark.parametrize("mends", ["merge", "doctor"])
def test_other_files_in_place_of_the_merge_slot_are_removed(crew: Merges, mends: str) -> None:
    crew.tests('[ -f b.txt ] || { cd .. && rm -rf merge && ln -s "$HERE" merge; }')
    (crew.root / "mine.txt").write_text("mine\n")
    crew.approved("a", "b")
    assert crew.merge("a") == ""
    slot = crew.crew.paths.slot("merge")
    assert slot.is_symlink()
    if mends == "doctor":
        disk = next(one.text for one in doctor(crew.root, fix=True).findings if one.about == "disk")
        assert "merge" not in disk
        assert not slot.is_symlink()
    assert crew.merge("b") == ""
    # Tests that took the tracked files away say nothing about the commit.
    assert [crew.status(task) for task in ("a", "b")] == ["INTEGRATION_FAILED", "MERGED"]
    assert not slot.is_symlink()
    assert (crew.root / "mine.txt").read_text() == "mine\n"
    slot_file = crew.crew.paths.slot("merge")
    shutil.rmtree(slot_file)
    slot_file.write_text("not a slot\n")
    crew.approved("c")
    assert crew.merge("c") == ""
    assert slot_file.with_name("merge-old").read_text() == "not a slot\n"


def test_a_failure_of_every_merge_blames_no_task(crew: Merges, tmp_path: Path) -> None:
    crew.approved("a", "b")
    place = crew.crew.paths.slots
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(crew.root)
    for task in ("a", "b"):
        with pytest.raises(LizaError) as stopped:
            merge(crew.crew, task)
        assert stopped.value.hint == f"rm {place}"
        assert (crew.status(task), crew.task(task).set_aside) == ("APPROVED", None)
    assert crew.alarms()["place_broken"].endswith(f"no task can be merged → {stopped.value.hint}")


@pytest.mark.campaign
def test_an_unreadable_repository_does_not_mean_a_missing_commit(crew: Merges) -> None:
    crew.approved("a")
    (crew.root / ".git" / "shallow").write_text("garbage\n")
    assert "shallow" in crew.merge("a")
    (crew.root / ".git" / "shallow").unlink()
    assert (crew.status("a"), crew.task("a").set_aside) == ("APPROVED", None)
    assert crew.merge("a") == ""


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_stopped_merge_counts_against_no_agent(crew: Merges, number: signal.Signals) -> None:
    crew.tests(f'kill -{number.value} $(cut -d" " -f1 "$HERE/.liza/merge.lock"); sleep 60')
    crew.approved("a")
    assert forks.run(lambda: merge(crew.crew, "a"), quiet=crew.check.with_name("said")) != 0
    assert (crew.status("a"), crew.task("a").set_aside, crew.task("a").merging) == ("APPROVED", None, None)


@pytest.mark.campaign
@pytest.mark.parametrize(("what", "code"), [("-d refs/heads/integration", 0), ("refs/heads/integration HEAD", 1)])
def test_a_sync_whose_tests_move_integration_leaves_it_unchanged(crew: Merges, what: str, code: int) -> None:
    commit_all(crew.root, "more", {"more.txt": "more\n"})
    start = crew.tip()
    crew.tests(f"git update-ref {what}; exit {code}")
    with pytest.raises(Refused):
        sync(crew.crew)
    assert crew.tip() == start
    assert re.search(r"tests_moved_refs .*refs/heads/integration", crew.alerts())
    assert crew.alarms() == {}
    crew.tests("exit 0")
    assert ", tested" in sync(crew.crew).message


@pytest.mark.campaign
def test_proof_that_cannot_run_again_is_named_on_its_task(crew: Merges) -> None:
    commit_all(crew.root, "a source", {"app.py": "x = 1\n"})
    crew.tests(f'{sys.executable} -B -c "import app"')
    sync(crew.crew)
    crew.approved("a")
    crew.configure(integration_command=f"sh -e {crew.check}")
    log = crew.crew.paths.logs / "baseline-tests.log"
    log.unlink()
    log.mkdir()
    with pytest.raises(NotRegularFile, match="baseline-tests"):
        merge(crew.crew)
    assert "baseline-tests.log" in crew.alarms()["merge_set_aside"]
    log.rmdir()
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"


@pytest.mark.campaign
def test_a_failure_after_a_merge_or_sync_leaves_it_done(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(crew: object) -> None:
        raise LockTimeout("the board is busy", "liza status")

    crew.approved("a")
    monkeypatch.setattr(draft_specs, "release_drafts", busy)
    assert "the board is busy" in merge(crew.crew, "a").message
    assert crew.status("a") == "MERGED"
    commit_all(crew.root, "more", {"more.txt": "more\n"})
    done = sync(crew.crew)
    assert ", tested" in done.message
    assert "the board is busy" in done.message
    assert done.details["freed"] == []
    assert crew.alerts().count("after_merge") == 2


@pytest.mark.campaign
def test_a_marked_system_failure_is_a_named_error(crew: Merges) -> None:
    crew.approved("a")
    log = crew.crew.paths.logs / "merge-a.log"
    log.mkdir(parents=True)
    with pytest.raises(NotRegularFile, match=r"merge-a\.log"):
        merge(crew.crew)
    assert "merge-a.log" in crew.alarms()["merge_set_aside"]
    with pytest.raises(NotRegularFile):
        merge(crew.crew, "a")
    log.rmdir()
    assert crew.merge("a") == ""


@pytest.mark.campaign
def test_tests_deleting_integration_leave_it_where_others_moved_it(crew: Merges) -> None:
    crew.approved("a")
    theirs = git(crew.root, "commit-tree", "-p", "integration", "-m", "theirs", "integration^{tree}")
    git(crew.root, "update-ref", "refs/heads/integration", theirs)
    start = crew.tip()
    crew.tests("test -e a.txt && exit 1; git update-ref -d refs/heads/integration")
    assert "put back" in crew.merge()
    assert crew.tip() == start
    assert re.search(r"tests_moved_refs .*refs/heads/integration", crew.alerts())
    assert crew.status("a") == "APPROVED"


def test_a_candidate_can_be_named_after_branches_with_slashes(crew: Merges) -> None:
    run = candidate.CandidateRun("team/a/b-alone", crew.tip(), crew.tip(), "integration")
    assert candidate.run_candidate_tests(crew.crew, run).how.tested
    assert (crew.crew.paths.logs / "merge-team-a-b-alone.log").is_file()


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("setup", "merge_clean"),
    [("git -c protocol.file.allow=always submodule update -q --init", "never"), ("true", "after_red")],
    ids=["fetched", "not fetched"],
)
def test_candidates_get_submodules_as_committed_despite_earlier_green_tests(
    crew: Merges, tmp_path: Path, setup: str, merge_clean: str
) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    git(lib, "init", "-q")
    git(lib, "commit", "-q", "--allow-empty", "-m", "lib")
    git(crew.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib), "lib")
    git(crew.root, "commit", "-q", "-m", "a submodule")
    sync(crew.crew)
    crew.configure(sandbox_setup=setup, merge_clean=merge_clean)
    crew.tests("test -e b.txt || { echo x > lib/made.txt; exit 0; }; test -e lib/made.txt")
    crew.approved("a", "b")
    assert (crew.merge("a"), crew.status("a")) == ("", "MERGED")
    crew.merge("b")
    assert "exit 1" in crew.failure("b")


def test_a_blank_test_command_counts_as_none(crew: Merges) -> None:
    crew.configure(integration_command=" \t")
    crew.approved("a")
    assert crew.merge() == ""
    assert (crew.status("a"), crew.task("a").tested) == ("MERGED", False)
    assert "without a test: a" in crew.alarms()["untested_merges"]


def _set_aside(crew: Crew, task: str, reason: str = "the disk is full") -> None:
    approved = crew.board.read().task(task)
    assert approved is not None
    merge_outcomes.record_failure(crew, "coder-1", approved, MergeFailure(MergeFailureKind.FAILED, reason))


def _clear_set_aside(crew: Merges, task: str) -> None:
    with crew.crew.change("human:ann", "edit") as tx:
        tx.state = tx.state.with_task(replace(crew.task(task), set_aside=None))


def _search(crew: Crew, state: State) -> list[str]:
    """What a supervisor reports that read the board as ``state``, and whose turn it is to search all alarms."""
    (crew.paths.tx / "alarm-check").unlink(missing_ok=True)
    alarms = check_alarms(crew, state, float("-inf")).alarms
    return [alarm.about for alarm in alarms if alarm.kind == AlarmKind.MERGE_SET_ASIDE]


def test_a_merge_set_aside_is_logged_at_once_and_once(
    crew: Merges,
) -> None:
    crew.approved("a", "b")
    before = crew.crew.board.read()
    for task in "aab":
        _set_aside(crew.crew, task)
    assert crew.alerts().count("merge_set_aside  a ") == crew.alerts().count("merge_set_aside  b ") == 1
    # This supervisor has read the board before the merges failed.
    assert _search(crew.crew, before) == ["a", "b"]
    assert _search(crew.crew, crew.crew.board.read()) == []
    _set_aside(crew.crew, "a")
    assert _search(crew.crew, crew.crew.board.read()) == []
    assert crew.alerts().count("merge_set_aside") == 2


def test_a_merge_set_aside_after_its_alarm_cleared_is_logged(crew: Merges) -> None:
    crew.approved("a")
    _set_aside(crew.crew, "a")
    _clear_set_aside(crew, "a")
    assert _search(crew.crew, crew.crew.board.read()) == []
    _set_aside(crew.crew, "a")
    assert crew.alerts().count("merge_set_aside") == 2


@pytest.mark.parametrize("is_searched", [False, True])
def test_a_merge_set_aside_for_another_reason_is_logged_again(crew: Merges, is_searched: bool) -> None:
    crew.approved("a")
    _set_aside(crew.crew, "a")
    if is_searched:
        assert _search(crew.crew, crew.crew.board.read()) == ["a"]
    _clear_set_aside(crew, "a")
    _set_aside(crew.crew, "a", "git has crashed")
    assert crew.alerts().count("git has crashed") == 1
    _search(crew.crew, crew.crew.board.read())
    assert crew.alerts().count("merge_set_aside") == 2


def test_an_alarm_logged_before_its_merger_could_is_logged_once(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.approved("a")
    log_early = logged_alarms.log_early

    def search_first(crew: Crew, *alarms: Iterable[Alarm]) -> None:
        assert _search(crew, crew.board.read()) == ["a"]
        log_early(crew, *alarms)

    monkeypatch.setattr(logged_alarms, "log_early", search_first)
    _set_aside(crew.crew, "a")
    assert crew.alerts().count("merge_set_aside") == 1


def test_a_merger_logs_without_waiting_for_a_blocked_supervisor(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_alarms, "LOCK_TIMEOUT", 0.01)
    crew.approved("a")
    with Lock(logged_alarms.alerts_lock(crew.crew.paths)):
        _set_aside(crew.crew, "a")
    assert crew.alerts().count("merge_set_aside  a ") == 1


def test_a_failed_merge_is_recorded_when_its_alarm_cannot_be(crew: Merges) -> None:
    crew.approved("a")
    crew.crew.paths.alerts.unlink(missing_ok=True)
    crew.crew.paths.alerts.mkdir()
    _set_aside(crew.crew, "a")
    assert crew.task("a").set_aside is not None


def typed_in_brackets(crew: Merges, task: str) -> None:
    """What a person may type: an entry between brackets with a comment, which no change of the entry can keep."""
    state = crew.crew.paths.state
    entry = json.dumps(to_plain(crew.task(task)))
    before, mark, rest = state.read_text().partition(f'  - id: "{task}"\n')
    after = re.split(r"(?m)^(?=  - |\S)", rest, maxsplit=1)[1]
    state.write_text(f"{before}  - {entry[0]} # {mark.strip()}\n     {entry[1:]}\n{after}")


@pytest.mark.campaign
def test_a_task_that_cannot_be_written_stops_no_other(crew: Merges) -> None:
    crew.approved("a")
    typed_in_brackets(crew, "a")
    assert "a cannot be changed on the board" in crew.merge()
    assert "a cannot be changed on the board" in crew.alarms()["merge_set_aside"]
    crew.approved("b")
    assert crew.merge() == ""
    assert (crew.status("a"), crew.status("b")) == ("APPROVED", "MERGED")
    assert re.search(r"a cannot be changed on the board: .* → liza edit", crew.alarms()["merge_set_aside"])
    with pytest.raises(LizaError, match="a cannot be changed on the board") as refused:
        merge(crew.crew, "a")
    assert refused.value.hint == "liza edit"
    state = crew.crew.paths.state
    state.write_text(state.read_text().replace('# - id: "a"', ""))
    assert crew.merge() == ""
    assert (crew.status("a"), crew.alarms().get("merge_set_aside")) == ("MERGED", None)


def _bug(*_: object, **__: object) -> None:
    raise TypeError("no such thing")


@pytest.mark.campaign
@pytest.mark.parametrize(
    "place",
    [
        "liza.git.candidates.build_candidate",
        variant("liza.merging.candidate_tests.run_candidate_tests"),
        variant("liza.git.branch_moves.advance_branch"),
    ],
)
def test_a_bug_in_one_merge_sets_its_task_aside(crew: Merges, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    crew.approved("a")
    with monkeypatch.context() as patch:
        patch.setattr(place, _bug)
        with pytest.raises(TypeError):
            merge(crew.crew)
    assert "this is a bug in liza: TypeError: no such thing" in crew.alarms()["merge_set_aside"]
    assert "→ liza bug-report && liza merge a" in crew.alarms()["merge_set_aside"]
    assert "in _bug" in (crew.crew.paths.logs / "merge-bug.log").read_text()
    crew.approved("b")
    assert crew.merge() == ""
    assert (crew.status("a"), crew.status("b")) == ("APPROVED", "MERGED")
    assert crew.merge("a") == ""


@pytest.mark.campaign
def test_a_bug_with_one_batched_task_still_merges_the_others(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.approved("a", "b", "c")
    build = candidates.build_candidate

    def fails_for_b(git: Git, commit: str, expected: str, message: str, task: str, **more: Any) -> str:
        if task == "b":
            _bug()
        return build(git, commit, expected, message, task, **more)

    monkeypatch.setattr(candidates, "build_candidate", fails_for_b)
    assert crew.merge() == ""
    assert [crew.status(task) for task in ("a", "b", "c")] == ["MERGED", "APPROVED", "MERGED"]
    assert "TypeError" in crew.alarms()["merge_set_aside"]


@pytest.mark.campaign
def test_a_failure_that_cannot_be_written_is_recorded_without_text(
    crew: Merges, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(*_: object, **__: object) -> None:
        raise GitFailed("it fails " + "x" * MAX_BOARD_SIZE, "git status")

    crew.approved("a")
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "build_candidate", too_long)
        assert "it fails" in crew.merge()
    assert "cannot be written to the board" in crew.alarms()["merge_set_aside"]
    assert "merge_set_aside  a: it fails xxx" in crew.alerts()
    crew.approved("b")
    assert crew.merge() == ""
    assert crew.status("b") == "MERGED"


@pytest.mark.campaign
def test_a_target_branch_with_two_checkouts_stops_its_tasks_only(crew: Merges, tmp_path: Path) -> None:
    git(crew.root, "branch", "release", "integration")
    for name in ("one", "two"):
        git(crew.root, "worktree", "add", "-q", "--force", str(tmp_path / name), "release")
    crew.approved("a", target="release")
    crew.approved("b")
    assert "release is checked out in" in crew.merge()
    assert "release is checked out in" in crew.alarms()["merge_set_aside"]
    assert crew.merge() == ""
    assert (crew.status("a"), crew.status("b")) == ("APPROVED", "MERGED")


@pytest.mark.campaign
@pytest.mark.parametrize("broken", ["two-checkouts", "full-disk", "lock"])
def test_what_is_at_fault_for_every_merge_blames_no_task(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    crew.approved("a")
    if broken == "two-checkouts":
        for name in ("one", "two"):
            git(crew.root, "worktree", "add", "-q", "--force", str(tmp_path / name), "integration")
        assert "integration is checked out in" in crew.merge()
    elif broken == "full-disk":
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_synced", _full)
            assert "disk" in crew.merge()
    else:
        with monkeypatch.context() as patch:
            patch.setattr(candidates, "build_candidate", _locked)
            assert "is taken" in crew.merge()
    assert (crew.status("a"), crew.task("a").set_aside) == ("APPROVED", None)


def _full(*_: object, **__: object) -> None:
    raise WriteFailed("writing to disk failed: No space left on device", "df -h .")


def _locked(*_: object, **__: object) -> None:
    raise LockTimeout("the lock is taken", "liza status")


@pytest.mark.campaign
def test_a_task_that_never_merges_stops_alone(crew: Merges) -> None:
    crew.tests("! ls bad-*.txt 2> /dev/null")
    crew.configure(max_review_cycles=1)
    crew.approved("a", work=bad)
    assert merge(crew.crew, "a").details["returned"] == ["a"]
    task = crew.task("a")
    assert (crew.status("a"), len(task.blocked_questions)) == ("BLOCKED", 1)
    assert (task.blocked_reason or "").startswith("1 failed merge; the last: ")
    crew.approved("b")
    assert crew.merge("b") == ""
    assert crew.status("b") == "MERGED"
