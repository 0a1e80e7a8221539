"""A merge is tested only if its gates ran on all files of exactly its commit, and changed none of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from liza.config.rules.test_proof import ProofVerdict
from liza.git import local_files
from liza.merging.merge import merge
from liza.model.configuration import Gate, TestProof
from liza.project import tree_snapshot
from liza.project.rules.tree_changes import TreeChanges
from tests.conftest import commit_all, git, make_repository, variant
from tests.edges.merge_crew import Merges

Work = Callable[[Path], None]


def baseline_writes(crew: Merges, *names: str) -> None:
    """Record what the tests write on the person's own commit."""
    command = f"sh {crew.check}"
    crew.configure(proof=TestProof(outcome=ProofVerdict.UNPROVED.value, command=command, why="-", writes=names))


def commits(**files: str) -> Work:
    """Return work that commits these files; ``__`` in a name is a dot."""

    def work(there: Path) -> None:
        for name, text in files.items():
            path = there / name.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        commit_all(there, "more")

    return work


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sed -i s/bug/mended/ code.py", "the tests change code.py (line 1: -bug"),
        ("git checkout -q --detach HEAD~1", "the tests left HEAD at"),
        variant("rm code.py", "the tests change code.py (it is gone)"),
        variant("git update-index --assume-unchanged code.py; echo mended > code.py", "the tests change"),
        variant("echo 2 > package-lock.json", "commit the result of `npm install --package-lock-only`"),
        variant("mkdir -p __snapshots__; echo new > __snapshots__/a.txt", "the tests change __snapshots__/a.txt"),
        variant("chmod -x run; printf '\\0' > blob", "the tests change blob"),
    ],
)
def test_a_candidate_that_its_own_tests_change_is_red(crew: Merges, script: str, said: str) -> None:
    def work(there: Path) -> None:
        (there / "run").write_text("#!/bin/sh\n")
        (there / "run").chmod(0o755)
        (there / "blob").write_bytes(b"\0\1")
        (there / "__snapshots__").mkdir()
        commits(code__py="bug\n", **{"package-lock__json": "1\n"})(there)
        (there / "__snapshots__" / "a.txt").write_text("old\n")
        commit_all(there, "expected")

    baseline_writes(crew)
    crew.configure(tests_write=("*.py", "*.txt"))
    crew.tests(script)
    crew.approved("a", work=work)
    crew.merge()
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert said in crew.failure("a")


@pytest.mark.campaign
def test_files_that_tests_write_on_every_commit_wait_for_permission(crew: Merges, tmp_path: Path) -> None:
    baseline_writes(crew, "coverage.xml")
    crew.tests("[ ! -f coverage.xml ] || date +%N >> coverage.xml")
    crew.approved("a", work=commits(coverage__xml="0\n"))
    assert "untested: the tests change coverage.xml, on integration too" in crew.merge()
    task = crew.task("a")
    assert (task.status, task.set_aside and task.set_aside.hint) == (
        "APPROVED",
        "liza config set tests_write coverage.xml",
    )
    assert "liza config set tests_write coverage.xml" in crew.alarms()["merge_set_aside"]
    crew.configure(tests_write=("coverage.xml",))
    assert crew.merge("a") == ""
    assert (crew.status("a"), crew.task("a").tested, crew.task("a").remarks) == (
        "MERGED",
        False,
        ("the tests change coverage.xml",),
    )
    assert "untested_merges" not in crew.alarms()
    assert git(crew.root, "show", "integration:coverage.xml") == "0"
    assert git(crew.root, "for-each-ref", "refs/liza/salvage") == ""


def test_a_person_merges_untested_what_a_supervisor_must_not(crew: Merges) -> None:
    baseline_writes(crew, "coverage.xml")
    crew.tests("echo more >> coverage.xml")
    crew.approved("a", work=commits(coverage__xml="0\n"))
    assert "untested" in crew.merge()
    merge(crew.crew, "a", untested=True)
    assert (crew.status("a"), crew.task("a").tested, crew.task("a").remarks) == ("MERGED", False, ())
    assert "merged without a test: a" in crew.alarms()["untested_merges"]
    assert "merged_untested  a is merged by" in crew.alerts()


@pytest.mark.parametrize(
    "script",
    [
        "cp code.py c && mv c code.py",
        variant("touch code.py; chmod 600 code.py; chmod 644 code.py"),
        variant("echo x > new.txt; mkdir -p out; echo y > out/z"),
        variant("echo x > new.tmp; git add -N . && git add -A"),
    ],
)
def test_tests_that_leave_the_commit_as_it_is_are_tests(crew: Merges, script: str) -> None:
    baseline_writes(crew)
    crew.tests(script)
    crew.approved("a", work=commits(code__py="code\n"))
    assert crew.merge() == ""
    assert (crew.status("a"), crew.task("a").tested) == ("MERGED", True)


def test_a_file_changed_by_checkout_counts_only_once_changed_further(crew: Merges) -> None:
    (crew.root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    commit_all(crew.root, "before .gitattributes")
    (crew.root / ".gitattributes").write_text("*.txt text\n")
    git(crew.root, "add", ".gitattributes")
    git(crew.root, "commit", "-q", "-m", "after it")
    crew.crew.worktrees.detach("merge", crew.tip("main"), "merge-x")
    slot = crew.crew.worktrees.slot_git("merge")
    assert "dos.txt" in git(slot.directory, "status", "--porcelain")
    before = tree_snapshot.take_snapshot(slot)
    assert tree_snapshot.find_changes(slot, before) == TreeChanges()
    (slot.directory / "dos.txt").write_text("three\n")
    assert [file.name for file in tree_snapshot.find_changes(slot, before).changed] == ["dos.txt"]


@pytest.mark.campaign
def test_a_candidate_whose_submodule_the_tests_change_is_red(crew: Merges, tmp_path: Path) -> None:
    library = tmp_path / "library"
    make_repository(library, {"lib.py": "bug\n"})

    def work(there: Path) -> None:
        git(there, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
        git(there, "commit", "-q", "-m", "lib")

    fetch = "git -c protocol.file.allow=always submodule update --init -q"
    baseline_writes(crew)
    crew.configure(sandbox_setup=fetch)
    crew.tests("[ ! -d lib ] || sed -i s/bug/mended/ lib/lib.py")
    crew.approved("a", work=work)
    crew.merge()
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert "the tests change lib/lib.py" in crew.failure("a")


@pytest.mark.campaign
def test_gates_know_the_commit_that_the_candidate_replaces(crew: Merges, tmp_path: Path) -> None:
    tip = crew.tip()
    baseline_writes(crew)
    crew.tests(f'echo "$LIZA_BASE" > {tmp_path}/base')
    crew.approved("a")
    assert crew.merge() == ""
    assert (tmp_path / "base").read_text().strip() == tip


@pytest.mark.campaign
def test_a_file_only_the_set_up_reads_triggers_it_again(crew: Merges) -> None:
    baseline_writes(crew)
    crew.configure(sandbox_setup="[ ! -f env.example ] || cp env.example .env")
    crew.tests("[ ! -f env.example ] || grep -q KEY .env")
    crew.approved("a", work=commits(env__example="KEY=1\n", __gitignore=".env\n"))
    assert crew.merge() == ""
    crew.approved("b", work=commits(env__example="OTHER=1\n"))
    crew.merge()
    assert (crew.status("a"), crew.status("b")) == ("MERGED", "INTEGRATION_FAILED")


@pytest.mark.campaign
def test_a_package_that_tests_install_is_removed_for_others(crew: Merges) -> None:
    baseline_writes(crew)
    crew.configure(sandbox_setup="mkdir -p .venv/lib/python3/site-packages && touch .venv/pyvenv.cfg")
    site = ".venv/lib/python3/site-packages"
    crew.tests(f"[ ! -f needs ] || mkdir -p {site}/dep-1.dist-info; [ -f needs ] || [ ! -d {site}/dep-1.dist-info ]")
    crew.approved("a", work=commits(needs="dep\n", __gitignore=".venv\n"))
    assert crew.merge() == ""

    def drop(there: Path) -> None:
        git(there, "rm", "-q", "needs")
        git(there, "commit", "-q", "-m", "without it")

    crew.approved("b", work=drop)
    assert crew.merge() == ""
    assert crew.task("b").tested is True


def test_a_candidate_without_any_test_is_red(crew: Merges) -> None:
    command = f"sh {crew.check}"
    crew.configure(proof=TestProof(outcome=ProofVerdict.PROVED.value, command=command))
    crew.tests("[ -f none ] && count=0 || count=2; printf 'Ran %s tests in 0.001s\\n\\nOK\\n' $count")
    crew.approved("a")
    assert crew.merge() == ""
    crew.approved("b", work=commits(none="-\n"))
    crew.merge()
    assert (crew.status("a"), crew.status("b")) == ("MERGED", "INTEGRATION_FAILED")
    assert "the command runs no test" in crew.failure("b")


def test_gates_use_no_cached_test_results(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    baseline_writes(crew)
    crew.tests('[ "$GOFLAGS" = "-mod=mod -count=1" ]')
    crew.approved("a")
    assert crew.merge() == ""


def test_a_result_counts_only_for_the_gates_that_ran(crew: Merges) -> None:
    baseline_writes(crew)
    crew.configure(gates=(Gate(name="lint", command="true"),))
    git(crew.root, "checkout", "-q", "integration")
    (crew.root / "mine.txt").write_text("mine\n")
    crew.approved("a", work=commits(mine__txt="theirs\n"))
    crew.merge()
    assert crew.task("a").merging is not None
    crew.configure(gates=(Gate(name="lint", command="false"),))
    (crew.root / "mine.txt").unlink()
    crew.merge("a")
    assert crew.status("a") == "INTEGRATION_FAILED"


def add_directories(crew: Merges) -> None:
    """Commit the directories ``mine`` and ``other`` to integration and main."""
    git(crew.root, "checkout", "-q", "integration")
    for name in ("mine", "other"):
        (crew.root / name).mkdir()
        (crew.root / name / "value").write_text("1\n")
    commit_all(crew.root, "two directories")
    git(crew.root, "checkout", "-q", "main")
    git(crew.root, "merge", "-q", "--ff-only", "integration")


@pytest.fixture
def sparse(crew: Merges) -> Merges:
    """A crew in a sparse checkout without ``other``."""
    add_directories(crew)
    git(crew.root, "sparse-checkout", "set", "mine")
    baseline_writes(crew)
    return crew


@pytest.mark.campaign
def test_a_candidate_is_tested_with_files_the_checkout_left_out(sparse: Merges) -> None:
    sparse.tests('[ ! -f a.txt ] || test "$(cat other/value)" = 1')
    sparse.approved("a")
    assert sparse.merge() == ""
    assert sparse.task("a").tested is True
    sparse.tests('test "$(cat other/value)" = 2')
    sparse.approved("b")
    sparse.merge()
    assert sparse.status("b") == "INTEGRATION_FAILED"
    assert not (sparse.root / "other").exists()
    assert git(sparse.root, "sparse-checkout", "list") == "mine"


def test_a_change_outside_a_sparse_checkout_is_untested(sparse: Merges) -> None:
    def outside(there: Path) -> None:
        (there / "other").mkdir(exist_ok=True)
        (there / "other" / "value").write_text("2\n")
        git(there, "add", "--sparse", "-A")
        git(there, "commit", "-q", "-m", "outside")

    sparse.configure(checkout="sparse")
    sparse.approved("a")
    assert sparse.merge() == ""
    assert (sparse.task("a").tested, sparse.task("a").remarks) == (False, ("only mine",))
    sparse.approved("b", work=outside)
    assert "untested: the sparse checkout leaves out other/value, which the candidate changes" in sparse.merge("b")
    assert sparse.status("b") == "APPROVED"


def test_shared_sparse_patterns_are_disabled_for_the_slot_only(crew: Merges) -> None:
    add_directories(crew)
    git(crew.root, "config", "core.sparseCheckout", "true")
    git(crew.root, "config", "core.sparseCheckoutCone", "false")
    (crew.root / ".git" / "info" / "sparse-checkout").write_text("/mine/\n")
    git(crew.root, "read-tree", "-m", "-u", "HEAD")
    crew.crew.worktrees.detach("merge", crew.tip(), "merge-x")
    slot = crew.crew.worktrees.slot_git("merge")
    assert local_files.list_included(slot) == ("/mine/",)
    local_files.make_full(slot)
    assert local_files.list_absent(slot) == ()
    assert (slot.directory / "other" / "value").exists()
    assert not (crew.root / "other").exists()
    assert git(crew.root, "config", "core.sparseCheckout") == "true"
