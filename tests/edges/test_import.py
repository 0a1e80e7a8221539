"""What a session in a box put into its git directory is imported completely and verified, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.repo import run_import
from liza.repo.run_refs import ImportRefused
from tests.boxed_slots import BoxedSlots
from tests.conftest import git

pytestmark = pytest.mark.needs("bwrap")


@pytest.fixture
def slots(repo: Path, tmp_path: Path) -> BoxedSlots:
    (repo / "a.txt").write_text("a\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "files")
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


@pytest.mark.parametrize("attack", list(ACCEPTED))
def test_what_a_run_wrote_beside_its_commits_is_ignored(slots: BoxedSlots, attack: str) -> None:
    ACCEPTED[attack](slots)
    tip = slots.trees.import_run("s1")
    assert (tip, git(slots.repo, "fsck", "--no-dangling"), state(slots)[1]) == (slots.tip(), "", [])
    assert not Path("/tmp/ran").exists()


@pytest.mark.parametrize("attack", list(REFUSED))
def test_what_is_no_valid_work_is_refused_and_leaves_nothing(slots: BoxedSlots, attack: str) -> None:
    act, words = REFUSED[attack]
    before = state(slots)
    act(slots)
    with pytest.raises(ImportRefused, match=words):
        slots.trees.import_run("s1")
    assert (state(slots), git(slots.repo, "fsck", "--no-dangling")) == (before, "")


def test_a_store_that_blocks_is_refused_in_time(slots: BoxedSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_import, "_READ_LIMIT", 1.0)
    with_alternates(slots, os.mkfifo)
    with pytest.raises(ImportRefused, match="longer than 1 s"):
        slots.trees.import_run("s1")
