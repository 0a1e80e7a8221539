"""Find which of the documents that tasks name exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from liza.crew.crew import Crew
from liza.rules.tasks.backlog import LIZA_SPECS


def find_existing_specs(crew: Crew, refs: Sequence[str]) -> frozenset[str]:
    """Return those of ``refs`` that exist at the tip of integration or below .liza/specs. The part after # is
    ignored."""
    branch = crew.board.read().config.integration_branch
    return frozenset(ref for ref in set(refs) if ref and _exists(crew, branch, ref.partition("#")[0]))


def _exists(crew: Crew, branch: str, path: str) -> bool:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts:
        return False
    if pure.is_relative_to(LIZA_SPECS):
        return (crew.paths.root / path).is_file()
    object_type = crew.git.run("cat-file", "-t", f"{branch}:{path}", codes=(0, 128))
    return object_type.stdout.strip() == b"blob"
