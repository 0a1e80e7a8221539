"""Environment variables for tests, set-up and sessions, without references to the person's checkout. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping

from liza.model.value_classes import Value

REMOVED_VARIABLES = (
    "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER", "CONDA_SHLVL",
    "PYTHONPATH", "PYTHONHOME", "NODE_PATH", "UV_PROJECT_ENVIRONMENT", "POETRY_ACTIVE", "PIPENV_ACTIVE",
)  # fmt: skip
"""Variables that select an environment or extend the module search path. Removed whatever their value is."""
SEARCH_PATHS = (
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH",
    "PERL5LIB", "RUBYLIB", "CLASSPATH", "GOPATH", "GOWORK", "CARGO_TARGET_DIR", "BUNDLE_GEMFILE",
)  # fmt: skip
"""Variables from which only the entries below the checkout are removed."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM = frozenset(("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"))
"""System directories. They stay on PATH, even if a container declares /usr/local as its environment."""


class RemovedVariable(Value):
    """One variable, or one entry of a search path, that was removed, and why."""

    name: str
    value: str
    why: str


class CleanEnvironment(Value):
    """The remaining variables, and what was removed."""

    variables: dict[str, str]
    removed: tuple[RemovedVariable, ...] = ()


def active_environment(variables: Mapping[str, str]) -> str | None:
    """Return the directory of the activated environment, or None. Its ``bin`` directory is on PATH."""
    entries = {posixpath.normpath(entry) for entry in variables.get("PATH", "").split(":") if entry}
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        directory = variables.get(name)
        if directory and directory.startswith("/") and posixpath.normpath(f"{directory}/bin") in entries:
            return posixpath.normpath(directory)
    return None


def clean_variables(
    variables: Mapping[str, str],
    root: str,
    keep: str | None = None,
    resolve: Callable[[str], str] = posixpath.normpath,
) -> CleanEnvironment:
    """Remove what selects an environment, and each search path entry that is relative or below ``root``.

    ``keep`` is the directory of an environment that may be used (``config.environment``): its ``bin`` directory comes
    first on PATH. ``resolve`` follows symbolic links; without it only the text of a path counts.
    """
    left = dict(variables)
    removed: list[RemovedVariable] = []
    for name in REMOVED_VARIABLES:
        if left.get(name):
            removed.append(RemovedVariable(name, left.pop(name), "it selects where modules are found"))
        left.pop(name, None)
    for name in sorted(left):
        if name.startswith("CONDA_PREFIX_"):
            removed.append(RemovedVariable(name, left.pop(name), "it selects where modules are found"))
    for name in SEARCH_PATHS:
        if name in left:
            _remove_entries(left, name, list(_entries_below(left[name], name, root, resolve)), removed)
    if "PATH" in left:
        wrong = list(
            _wrong_programs(
                left["PATH"], root, _bin_directory(active_environment(variables)), _bin_directory(keep), resolve
            )
        )
        _remove_entries(left, "PATH", wrong, removed)
    if keep is not None:
        first = _bin_directory(keep)
        others = [entry for entry in left.get("PATH", DEFAULT_PATH).split(":") if posixpath.normpath(entry) != first]
        left["PATH"] = ":".join([str(first), *others])
    return CleanEnvironment(left, tuple(removed))


def _bin_directory(environment: str | None) -> str | None:
    return None if environment is None else posixpath.normpath(f"{environment}/bin")


def _wrong_programs(
    path: str, root: str, active: str | None, keep: str | None, resolve: Callable[[str], str]
) -> Iterator[RemovedVariable]:
    for entry in path.split(":"):
        if not entry.startswith("/"):
            yield RemovedVariable("PATH", entry, "it is relative: in a worktree it leads to files of an agent")
        elif posixpath.normpath(entry) == keep or posixpath.normpath(entry) in _SYSTEM:
            continue
        elif _is_below(entry, root, resolve):
            yield RemovedVariable("PATH", entry, "it is inside your checkout")
        elif posixpath.normpath(entry) == active:
            yield RemovedVariable("PATH", entry, "it belongs to the activated environment")


def _entries_below(path: str, name: str, root: str, resolve: Callable[[str], str]) -> Iterator[RemovedVariable]:
    for entry in path.split(":"):
        if entry.startswith("/") and _is_below(entry, root, resolve):
            yield RemovedVariable(name, entry, "it is inside your checkout")


def _is_below(entry: str, root: str, resolve: Callable[[str], str]) -> bool:
    """Return whether a path is ``root`` or below it, as written or with its symbolic links resolved."""
    tops = {posixpath.normpath(root), resolve(root)}
    return any(
        path == top or path.startswith(f"{top}/")
        for path in (posixpath.normpath(entry), resolve(entry))
        for top in tops
    )


def _remove_entries(
    left: dict[str, str], name: str, wrong: list[RemovedVariable], removed: list[RemovedVariable]
) -> None:
    if not wrong:
        return
    removed_values = {variable.value for variable in wrong}
    entries = [entry for entry in left[name].split(":") if entry not in removed_values]
    if entries:
        left[name] = ":".join(entries)
    elif name == "PATH":
        left[name] = DEFAULT_PATH
    else:
        del left[name]
    removed.extend(wrong)
