"""Commits that differ from another commit in the text of some files, made without a worktree; and files of a commit."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from liza.git.runner import Git


def commit_files(git: Git, parent: str, texts: Mapping[str, str], message: str) -> str:
    """Return a new commit on ``parent`` in which tracked files have other ``texts``. No ref and no worktree changes.

    Raises GitFailed, OSError.
    """
    names = sorted(texts)
    with tempfile.TemporaryDirectory(prefix="liza-commit-") as folder:
        # Only an index is read, not the files of a worktree, and a box does not show this directory.
        own = git.with_box(None).with_environment(GIT_INDEX_FILE=f"{folder}/index")
        own.out("read-tree", parent)
        modes = {row.partition("\t")[2]: row.partition(" ")[0] for row in own.names("ls-files", "-s", "-z")}
        paths = []
        for number, name in enumerate(names):
            paths.append(Path(folder) / str(number))
            paths[-1].write_text(texts[name], "utf-8", "surrogateescape", newline="")
        blobs = own.out(
            "hash-object", "-w", "--no-filters", "--stdin-paths", stdin="".join(f"{path}\n" for path in paths)
        )
        rows = [f"{modes[name]} {blob}\t{name}\0" for name, blob in zip(names, blobs.split("\n"), strict=True)]
        own.out("update-index", "-z", "--index-info", stdin="".join(rows))
        tree = own.out("write-tree", "--missing-ok")
    return git.with_identity().out("commit-tree", tree, "-p", parent, "-m", message)


def read_files(git: Git, commit: str, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of those files that ``commit`` has, each decoded as UTF-8. Raises GitFailed."""
    if not names:
        return {}
    wanted = [name for name in names if "\n" not in name]
    output = git.raw("cat-file", "--batch", stdin="".join(f"{commit}:{name}\n" for name in wanted))
    texts: dict[str, str] = {}
    for name in wanted:
        head, _, output = output.partition(b"\n")
        words = head.split()
        if len(words) != 3 or words[1] not in (b"blob", b"tree", b"commit", b"tag"):
            continue  # the line `NAME missing`
        size = int(words[2])
        if words[1] == b"blob":
            texts[name] = output[:size].decode("utf-8", "surrogateescape")
        output = output[size + 1 :]
    return texts
