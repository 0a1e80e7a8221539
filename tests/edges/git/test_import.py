"""What a session in a box put into its git directory is imported completely and verified, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from liza.git import run_git, run_import
from liza.git.run_git import ImportRefused
from liza.model.value_classes import replace as vary
from tests.boxed_slots import BoxedSlots
from tests.conftest import commit_all, git

pytestmark = pytest.mark.needs("bwrap")


@pytest.fixture
def slots(repo: Path, tmp_path: Path) -> BoxedSlots:
    commit_all(repo, "files", {"a.txt": "a\n"})
    slots = BoxedSlots(repo, tmp_path / "slots").prepare()
    slots.begin()
    return slots


def objects(slots: BoxedSlots) -> Path:
    return slots.own.git / "objects"


def loose(slots: BoxedSlots, name: str) -> Path:
    return objects(slots) / name[:2] / name[2:]


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def replace_ref(slots: BoxedSlots, make: Callable[[Path], object]) -> None:
    set_tip(slots, "")
    replace(slots.own.git / "refs" / "heads" / "task" / "t", make)


def set_tip(slots: BoxedSlots, text: str) -> None:
    path = slots.own.git / "refs" / "heads" / "task" / "t"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)


def raw_tree(slots: BoxedSlots, rows: str) -> None:
    """Commit a tree that git would not make: rows of mode, name and text."""
    script = (
        "python3 - <<'E'\nimport hashlib,os,subprocess\n"
        "def put(kind,data):\n"
        " return subprocess.run(['git','hash-object','-t',kind,'-w','--stdin','--literally'],"
        "input=data,capture_output=True,check=True).stdout.strip()\n"
        f"rows={rows}\n"
        "tree=put('tree',b''.join(m+b' '+n+b'\\0'+bytes.fromhex(put('blob',t).decode()) for m,n,t in rows))\n"
        "body=b'tree '+tree+b'\\nparent '+subprocess.run(['git','rev-parse','HEAD'],capture_output=True).stdout.strip()"
        "+b'\\nauthor A <a@b> 1 +0000\\ncommitter A <a@b> 1 +0000\\n\\nx\\n'\n"
        "subprocess.run(['git','update-ref','refs/heads/task/t',put('commit',body)],check=True)\nE"
    )
    slots.do(script)


def bomb(slots: BoxedSlots) -> None:
    """Commit a tree of 10^11 paths in 2 kB."""
    slots.do(
        "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 blob %s\\tf\\n' $b | git mktree);"
        "for level in 1 2 3 4 5 6 7 8 9 10 11; do"
        " t=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\\td%s\\n' $t $n; done | git mktree); done;"
        "git update-ref refs/heads/task/t $(git commit-tree -p HEAD -m x $t)"
    )


def zeros(slots: BoxedSlots) -> None:
    slots.do("truncate -s 600M big; git -c core.compression=1 add big; git commit -qm big")


def without_object(slots: BoxedSlots, what: str) -> None:
    slots.commit("new.txt")
    loose(slots, slots.do(f"git rev-parse {what}")).unlink()


def with_object(slots: BoxedSlots, make: Callable[[Path], object]) -> None:
    slots.commit("new.txt")
    replace(loose(slots, slots.do("git rev-parse HEAD:new.txt")), make)


def with_alternates(slots: BoxedSlots, make: Callable[[Path], object]) -> None:
    slots.commit("new.txt")
    replace(objects(slots) / "info" / "alternates", make)


def linked_objects(slots: BoxedSlots) -> None:
    slots.commit("new.txt")
    objects(slots).rename(slots.own.git / "moved")
    objects(slots).symlink_to("/etc")


def set_up(script: str) -> Callable[[BoxedSlots], None]:
    def run(slots: BoxedSlots) -> None:
        slots.commit("new.txt")
        slots.do(script)

    return run


def in_config(text: str) -> Callable[[BoxedSlots], None]:
    def run(slots: BoxedSlots) -> None:
        slots.commit("new.txt")
        with (slots.own.git / "config").open("a") as file:
            file.write(text)

    return run


def commit_text(text: str) -> Callable[[BoxedSlots], None]:
    def run(slots: BoxedSlots) -> None:
        slots.do(
            f"printf 'tree %s\\nparent %s\\n{text}\\n\\nx\\n' $(git rev-parse HEAD^{{tree}} HEAD)"
            " | git hash-object -t commit -w --stdin --literally | xargs git update-ref refs/heads/task/t"
        )

    return run


ACCEPTED: dict[str, Callable[[BoxedSlots], object]] = {
    "alternates: nonsense": lambda slots: with_alternates(slots, lambda path: path.write_bytes(b"\0\xff\n/nowhere\n")),
    "alternates: a loop": lambda slots: with_alternates(slots, lambda path: path.write_text(f"{objects(slots)}\n")),
    "alternates: removed": lambda slots: with_alternates(slots, lambda path: None),
    "a bad multi-pack-index": set_up('cd "$(git rev-parse --git-dir)"; echo bad > objects/pack/multi-pack-index'),
    "a bad pack beside": set_up(
        'cd "$(git rev-parse --git-dir)"; echo bad > objects/pack/pack-1.pack; echo bad > objects/pack/pack-1.idx'
    ),
    "grafts": set_up('cd "$(git rev-parse --git-dir)"; git rev-parse HEAD > info/grafts'),
    "shallow": set_up('cd "$(git rev-parse --git-dir)"; git rev-parse HEAD > shallow'),
    "a replaced commit": set_up("git replace HEAD HEAD^"),
    "config: include of a device": in_config("[include]\n\tpath = /dev/zero\n"),
    "config: fsmonitor": in_config("[core]\n\tfsmonitor = touch /tmp/ran; false\n"),
    "config: a hook for packs": in_config("[uploadpack]\n\tpackObjectsHook = touch /tmp/ran\n"),
    "config: not readable": in_config("[[[\n"),
    "hooks": set_up('cd "$(git rev-parse --git-dir)"; echo "touch /tmp/ran" > hooks/update; chmod +x hooks/update'),
    "another author": set_up("git commit -q --allow-empty --author 'Linus <l@x>' -m x"),
    "a repository as a file": set_up("git init -q in; cd in; git commit -q --allow-empty -m x; cd ..; git add in;"
        "git commit -qm gitlink"),
    "unrelated history": set_up("git update-ref refs/heads/task/t $(git commit-tree -m x HEAD^{tree})"),
    "a link in the tree": set_up("ln -s /etc/passwd link; git add .; git commit -qm link"),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[BoxedSlots], object], str]] = {
    "the ref is a link": (
        lambda slots: replace_ref(slots, lambda path: path.symlink_to("/etc/passwd")), "not a regular file",
    ),
    "a directory of the ref is a link": (
        lambda slots: (slots.commit("x"), (slots.own.git / "refs" / "heads").rename(slots.own.git / "r"),
                       (slots.own.git / "refs" / "heads").symlink_to("../r")),
        "cannot be read",
    ),
    "the ref is a pipe": (
        lambda slots: replace_ref(slots, os.mkfifo), "not a regular file"),
    "the ref is symbolic": (lambda slots: set_tip(slots, "ref: refs/heads/integration\n"), "not a commit"),
    "the ref is an option": (lambda slots: set_tip(slots, "--output=/tmp/x\n"), "not a commit"),
    "the ref is endless": (lambda slots: set_tip(slots, "a" * 100_000), "cannot be read"),
    "the ref is a file's content": (
        lambda slots: set_tip(slots, slots.do("echo x | git hash-object -w --stdin")), "not a commit|blob"),
    "the ref is a tag": (
        lambda slots: (slots.commit("x"), slots.do("git tag -am x v1; git rev-parse v1 > /tmp/v"),
                       set_tip(slots, slots.do("git rev-parse v1"))), "tag"),
    "the ref names nothing": (lambda slots: set_tip(slots, "1" * 40), "cannot be read"),
    "a missing file": (lambda slots: without_object(slots, "HEAD:new.txt"), "cannot be read"),
    "a missing tree": (lambda slots: without_object(slots, "HEAD^{tree}"), "cannot be read"),
    "a missing parent": (
        lambda slots: (slots.commit("one"), parent := slots.do("git rev-parse HEAD"), slots.commit("two"),
                       loose(slots, parent).unlink()), "cannot be read"),
    "an object of another name": (
        lambda slots: with_object(slots, lambda path: path.write_bytes(b"nonsense")), "cannot be read"),
    "an object that is a device": (
        lambda slots: with_object(slots, lambda path: path.symlink_to("/dev/zero")), "cannot be read"),
    "an object that is a secret": (
        lambda slots: with_object(slots, lambda path: path.symlink_to("/etc/shadow")), "cannot be read"),
    "the store is a link": (linked_objects, "cannot be read"),
    "a file .git": (lambda slots: raw_tree(slots, "[(b'100644',b'.git',b'x')]"), "git does not accept"),
    "a file .GIT": (lambda slots: raw_tree(slots, "[(b'100644',b'.GIT',b'x')]"), "git does not accept"),
    "a file ..": (lambda slots: raw_tree(slots, "[(b'100644',b'..',b'x')]"), "git does not accept"),
    "a link .gitmodules": (lambda slots: raw_tree(slots, "[(b'120000',b'.gitmodules',b'x')]"), "git does not accept"),
    ".gitmodules with a command": (
        lambda slots: raw_tree(
            slots, "[(b'100644',b'.gitmodules',b'[submodule \"a\"]\\npath=a\\nurl=./a\\nupdate=!touch x\\n')]"),
        "git does not accept"),
    "an author without an address": (
        commit_text("author A 1 +0000\\ncommitter A <a@b> 1 +0000"), "git does not accept"),
    "600 MB of zeros": (zeros, "too large"),
    "a tree of 10^11 paths": (bomb, "too large"),
}  # fmt: skip


def state(slots: BoxedSlots) -> tuple[str, list[str]]:
    files = [str(path.relative_to(slots.repo / ".git")) for path in (slots.repo / ".git" / "objects").rglob("*")]
    refs = git(slots.repo, "for-each-ref", "--format=%(refname) %(objectname)")
    return refs, sorted(file for file in files if "incoming" in file or "tmp" in file)


@pytest.mark.sample(4)
@pytest.mark.parametrize("attack", list(ACCEPTED))
def test_what_a_run_wrote_beside_its_commits_is_ignored(slots: BoxedSlots, attack: str) -> None:
    ACCEPTED[attack](slots)
    tip = slots.trees.import_run("s1")
    assert (tip, git(slots.repo, "fsck", "--no-dangling"), state(slots)[1]) == (slots.tip(), "", [])
    assert not Path("/tmp/ran").exists()


@pytest.mark.sample(5)
@pytest.mark.parametrize("attack", list(REFUSED))
def test_what_is_no_valid_work_is_refused_and_leaves_nothing(slots: BoxedSlots, attack: str) -> None:
    act, words = REFUSED[attack]
    before = state(slots)
    act(slots)
    with pytest.raises(ImportRefused, match=words):
        slots.trees.import_run("s1")
    assert (state(slots), git(slots.repo, "fsck", "--no-dangling")) == (before, "")


@pytest.mark.campaign
def test_a_store_that_blocks_is_refused_in_time(slots: BoxedSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_import, "_READ_LIMIT", 1.0)
    with_alternates(slots, os.mkfifo)
    with pytest.raises(ImportRefused, match="longer than 1 s"):
        slots.trees.import_run("s1")


def dies_at(point: str, work: Callable[[], object]) -> None:
    """Do ``work`` in a child process that is killed at a crash point."""
    pid = os.fork()
    if pid == 0:
        os.environ["LIZA_FAULT"] = point
        try:
            work()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL, point


IMPORT_POINTS = [
    *("import.begun", "import.read", "import.checked", "import.moved.pack", "import.moved.rev", "import.moved.idx"),
    *("import.files", "import.prepared", "git.read-tree", "git.update-ref", "import.ref"),
]


@pytest.mark.campaign
def test_an_import_killed_at_any_step_is_completed_next_time(slots: BoxedSlots) -> None:
    for number, point in enumerate(IMPORT_POINTS):
        commit = slots.commit(f"{number}.txt")
        before = slots.tip()
        dies_at(point, lambda: slots.trees.import_run("s1"))
        assert slots.tip() in (before, commit)
        assert git(slots.repo, "fsck", "--no-dangling") == ""
        slots.trees.remove_incoming()
        assert (slots.trees.import_run("s1"), slots.tip(), state(slots)[1]) == (commit, commit, [])
        assert git(slots.slot, "status", "--porcelain") == ""


START_POINTS = ["written", "saved", "retired", "renamed", "based"]


@pytest.mark.campaign
def test_a_start_killed_at_any_step_is_completed_next_time(slots: BoxedSlots) -> None:
    (slots.own.git / "modules" / "m").mkdir(parents=True)
    for number, point in enumerate(START_POINTS):
        run_git.leave_run_git(slots.trees.slot_git("s1"))
        run = f"coder-1.{number + 2}"
        dies_at(f"run-git.{point}", partial(slots.begin, run))
        slots.begin(run)
        commit = slots.commit(f"{number}.txt")
        assert slots.trees.import_run("s1") == commit
        assert sorted(path.name for path in slots.own.directory.iterdir() if "git" in path.name) == ["dotgit", "git"]
        assert (slots.own.git / "modules" / "m").is_dir()
    assert git(slots.repo, "for-each-ref", "--format=%(refname)", "refs/liza/base").count("\n") == 0


@pytest.mark.campaign
def test_an_import_on_a_full_disk_changes_nothing(slots: BoxedSlots) -> None:
    commit, before = slots.commit("new.txt"), slots.tip()
    for point in ("import.begun", "import.moved.pack", "import.moved.idx", "import.files"):
        pid = os.fork()
        if pid == 0:
            os.environ["LIZA_FAULT"] = f"{point}:full"
            try:
                slots.trees.import_run("s1")
            except OSError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert (slots.tip(), state(slots)[1], git(slots.repo, "fsck", "--no-dangling")) == (before, [], "")
    assert slots.trees.import_run("s1") == commit


def test_two_imports_at_once_bring_the_same_commit(slots: BoxedSlots) -> None:
    commit = slots.commit("new.txt")
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(slots.trees.import_run, "s1") for _ in range(2)]
    assert [work.result() for work in done] == [commit, commit]


def test_a_branch_that_a_person_moved_is_not_moved_back(slots: BoxedSlots) -> None:
    slots.commit("own.txt")
    other = git(slots.repo, "commit-tree", "-p", "main", "-m", "person", "main^{tree}")
    git(slots.repo, "update-ref", "refs/heads/task/t", other)
    with pytest.raises(ImportRefused, match="was moved"):
        slots.trees.import_run("s1")
    assert slots.tip() == other
    slots.do("git fetch -q liza && git rebase -q liza/task/t")
    slots.trees.import_run("s1")
    assert git(slots.repo, "log", "--format=%s", "-n2", "task/t").splitlines() == ["own.txt", "person"]


@pytest.mark.campaign
@pytest.mark.needs("git-lfs")
def test_files_of_lfs_come_with_the_commits_and_are_verified(slots: BoxedSlots) -> None:
    slots.do("git lfs install --local --skip-smudge -f; git lfs track '*.bin'; echo large > x.bin; git add -A")
    slots.do("git commit -qm lfs")
    slots.trees.import_run("s1")
    name = hashlib.sha256(b"large\n").hexdigest()
    assert (slots.repo / ".git" / "lfs" / "objects" / name[:2] / name[2:4] / name).read_bytes() == b"large\n"
    slots.do("echo more > y.bin; git add -A; git commit -qm lfs")
    other = hashlib.sha256(b"more\n").hexdigest()
    path = slots.own.git / "lfs" / "objects" / other[:2] / other[2:4] / other
    path.chmod(0o600)
    path.write_text("something else")
    before = slots.tip()
    with pytest.raises(ImportRefused, match="another content"):
        slots.trees.import_run("s1")
    assert slots.tip() == before


def test_a_linked_lfs_directory_is_not_followed(slots: BoxedSlots, tmp_path: Path) -> None:
    slots.commit("new.txt")
    (slots.own.git / "lfs").mkdir()
    (slots.own.git / "lfs" / "objects").symlink_to("/etc")
    slots.trees.import_run("s1")
    assert not (slots.repo / ".git" / "lfs").exists()


@pytest.mark.campaign
@pytest.mark.parametrize(
    "damage",
    [
        "ln -sfn /etc/passwd logs/refs/stash",
        "rm logs/refs/stash; mkfifo logs/refs/stash",
        "rm -rf logs; ln -s /etc logs",
        f"mkdir -p lfs/objects/aa/bb; touch lfs/objects/aa/bb/{'c' * 64}",
        f"mkdir -p lfs/objects/aa/aa; mkfifo lfs/objects/aa/aa/{'a' * 64}",
    ],
)
def test_a_damaged_run_git_frees_its_slot_and_keeps_stashes(slots: BoxedSlots, damage: str) -> None:
    commit = slots.commit("new.txt")
    slots.do("echo stashed > a.txt; git stash -q")
    slots.do(f'cd "$(git rev-parse --git-dir)"; {damage}')
    slots.claim("u", "coder-1.2")
    assert [git(slots.repo, "show", f"{ref}:a.txt") for ref in slots.salvages()][-1] == "stashed"
    assert commit in git(slots.repo, "rev-list", "--all").split()


@pytest.mark.campaign
def test_a_slot_full_of_odd_files_is_saved_and_reused(slots: BoxedSlots) -> None:
    slots.trees = vary(slots.trees, git=slots.trees.git.with_timeout(2))
    slots.do("mkdir odd; ln -s /dev/zero odd/zero; ln -s . odd/loop; echo x > odd/file; ln -s /etc etc")
    os.mkfifo(slots.slot / "odd" / "pipe")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(slots.slot / "odd"):
        server.bind("socket")
    for name in ("AGENTS.md", ".gitignore", ".mailmap"):
        os.mkfifo(slots.slot / name)
    replace(slots.own.git / "MERGE_HEAD", os.mkfifo)
    replace(slots.own.git / "info" / "exclude", lambda path: path.symlink_to("/dev/zero"))
    slots.claim("u", "coder-1.2")
    slots.begin("coder-1.2")
    assert slots.commit("fine.txt") == slots.trees.import_run("s1")


def test_a_planted_program_runs_in_a_box_only(slots: BoxedSlots, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    script = f"date > {mark}; date > /tmp/inside-$$"
    slots.do(
        f"git init -q in; cd in; git commit -q --allow-empty -m x; git config core.fsmonitor '{script}';"
        "cd ..; git add in; git commit -qm gitlink; echo x > in/new"
    )
    slots.do(f"git config core.fsmonitor '{script}'; git config filter.x.clean '{script}'")
    (slots.slot / ".gitattributes").write_text("* filter=x\n")
    slots.trees.import_run("s1")
    assert slots.trees.list_changes("s1")
    slots.claim("u", "coder-1.2")
    assert not mark.exists()
    assert slots.salvages()


@pytest.mark.campaign
def test_a_filter_program_from_the_worktree_runs_in_boxes_only(slots: BoxedSlots, tmp_path: Path) -> None:
    for name in ("clean", "smudge"):
        git(slots.repo, "config", f"filter.own.{name}", f"./{name}.sh %f")
    (slots.slot / ".gitattributes").write_text("*.x filter=own\n")
    for name in ("clean", "smudge"):
        (slots.slot / f"{name}.sh").write_text("#!/bin/sh\nexec tr a-z A-Z\n")
        (slots.slot / f"{name}.sh").chmod(0o755)
    slots.commit("it's a; name.x", "text\n")
    slots.trees.import_run("s1")
    mark = tmp_path / "ran"
    (slots.slot / "smudge.sh").write_text(f"#!/bin/sh\ndate > {mark}\ncat\n")
    (slots.slot / "clean.sh").write_text(f"#!/bin/sh\ndate > {mark}\ncat\n")
    (slots.slot / "it's a; name.x").write_text("changed\n")
    slots.begin()
    slots.claim("u", "coder-1.2")
    slots.claim("t", "coder-1.3")
    assert (slots.slot / "it's a; name.x").read_text() == "CHANGED\n"  # restored, by the filter of the commit
    assert not mark.exists()
