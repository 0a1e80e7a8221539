"""Read refs of a git directory that an agent can write, by hand: no git runs, and no link is followed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from liza.git.runner import COMMIT
from liza.model.errors import GitFailed, NotRegularFile
from liza.system import untrusted_files

MAX_REFS: Final = 64 << 20
"""Maximum size of the packed refs of a repository, in bytes."""


class ImportRefused(GitFailed):
    """What a run made cannot be imported: it is damaged, invalid or too large. Nothing was changed. Exit code 3."""

    code = "import-refused"


def read_tip(git_dir: Path, ref: str) -> str | None:
    """Return the commit id that a ref of a run names, unchecked; None without that ref.

    No git runs, and no link is followed. Raises ImportRefused if the ref has another value.
    """
    try:
        value = untrusted_files.read_below(git_dir, ref, 128)
        if value is None:
            packed = untrusted_files.read_below(git_dir, "packed-refs", MAX_REFS) or b""
            match = re.search(rb"(?m)^([0-9a-f]+) " + re.escape(ref.encode()) + rb"$", packed)
            value = match[1] if match is not None else None
    except (OSError, NotRegularFile) as error:
        raise ImportRefused(
            f"{ref} of {git_dir} cannot be read: {error}", shlex.join(["ls", "-lR", str(git_dir / "refs")])
        ) from error
    if value is None:
        return None
    text = value.decode("ascii", "replace").strip()
    if not COMMIT.fullmatch(text):
        raise ImportRefused(f"{ref} of {git_dir} is {text[:60]!r}, not a commit", f"git update-ref {ref} HEAD")
    return text
