"""A copy of the index of a worktree, which git may change while the index itself stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git


@contextmanager
def copy_index(git: Git) -> Iterator[Git]:
    """Yield git with a copy of the index. Raises GitFailed.

    The copy keeps the file times, its own too, so that git knows which files may have changed since.
    """
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="liza-index-") as folder:
        index = Path(folder) / "index"
        git_dir = git.git_dir or git_dirs(git)[0]
        if (git_dir / "index").exists():
            shutil.copy2(git_dir / "index", index)
        yield git.with_environment(GIT_INDEX_FILE=str(index))
