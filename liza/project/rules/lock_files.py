"""Lock files, and the command that makes each of them again. Pure."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Final

LOCK_COMMANDS: Final = {
    "Cargo.lock": "cargo update --workspace",
    "Gemfile.lock": "bundle lock",
    "Pipfile.lock": "pipenv lock",
    "bun.lock": "bun install",
    "bun.lockb": "bun install",
    "composer.lock": "composer update --lock",
    "go.mod": "go mod tidy",
    "go.sum": "go mod tidy",
    "go.work.sum": "go work sync",
    "mix.lock": "mix deps.get",
    "npm-shrinkwrap.json": "npm install --package-lock-only",
    "package-lock.json": "npm install --package-lock-only",
    "pdm.lock": "pdm lock",
    "pnpm-lock.yaml": "pnpm install --lockfile-only --no-frozen-lockfile",
    "poetry.lock": "poetry lock",
    "uv.lock": "uv lock",
    "yarn.lock": "yarn install",
}
"""The command that updates a lock file, by the name of the file."""
GENERATED_LOCKS: Final = frozenset(
    (
        "Cargo.lock",
        "go.sum",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "pnpm-lock.yaml",
        "poetry.lock",
        "uv.lock",
        "yarn.lock",
    )
)
"""Lock files that `init` proposes for ``config.generated``: their command changes no other file, and keeps the versions
that are locked."""
YARN_SETTINGS: Final = ".yarnrc.yml"
"""A file beside `yarn.lock` that yarn 1 does not have: later versions have another option."""
_YARN_LATER: Final = "yarn install --mode=update-lockfile"
_MAX_DEPTH: Final = 2  # directories; deeper files are examples and test data


def propose_generated(tracked: Collection[str]) -> dict[str, str]:
    """Return ``config.generated`` for the lock files among the tracked files."""
    names, proposed = frozenset(tracked), {}
    for name in sorted(names):
        path = PurePosixPath(name)
        if path.name in GENERATED_LOCKS and len(path.parts) <= _MAX_DEPTH + 1:
            is_later_yarn = path.name == "yarn.lock" and str(path.with_name(YARN_SETTINGS)) in names
            proposed[name] = _YARN_LATER if is_later_yarn else LOCK_COMMANDS[path.name]
    return proposed
