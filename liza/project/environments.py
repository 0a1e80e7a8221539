"""Check whether a person's Python environment holds dependencies only, or also the checkout itself."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from liza.model import clean_environment
from liza.model.clean_environment import RemovedVariable
from liza.project.rules.project_kinds import ProjectCommand

_MAX_BYTES = 1 << 20  # bytes of a file that are searched for a path


def find_checkout_links(environment: Path, root: Path) -> tuple[str, ...]:
    """Find the files of an environment that make Python import from ``root`` or from an installed copy of it.

    Each line names the file and the directory that it leads to. If there is none, the environment holds dependencies
    only.
    """
    root_path = root.resolve()
    links = []
    for site in sorted(environment.glob("lib*/python3*/*-packages")):
        for name, target in _import_targets(site):
            real = Path(os.path.realpath(site / target))
            if real.is_relative_to(root_path) and not real.is_relative_to(environment.resolve()):
                links.append(f"{name} leads to {real}")
    return tuple(dict.fromkeys(links))


def _import_targets(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.glob("*.pth")):
        lines = _read_start(path).splitlines()
        yield from (
            (path.name, line.strip()) for line in lines if line.strip() and not line.startswith(("import", "#"))
        )
    for path in sorted(site.glob("*.egg-link")):
        yield path.name, _read_start(path).partition("\n")[0].strip()
    for path in sorted(site.glob("__editable___*_finder.py")):
        yield from ((path.name, target) for target in _finder_directories(_read_start(path)))
    for path in sorted(site.glob("*.dist-info/direct_url.json")):
        target = install_source(path.parent)
        if target is not None:
            yield f"{path.parent.name}/{path.name}", str(target)


def install_source(info: Path) -> Path | None:
    """Directory that a distribution was installed from, or None; ``info`` is its ``.dist-info`` directory."""
    try:
        url = urlsplit(json.loads(_read_start(info / "direct_url.json"))["url"])
    except (ValueError, KeyError, TypeError):
        return None
    return Path(os.path.realpath(unquote(url.path))) if url.scheme == "file" else None


def _finder_directories(finder: str) -> Iterator[str]:
    """Directories in the MAPPING table of an editable install's finder module."""
    for line in finder.splitlines():
        name, _, table = line.partition("=")
        if name.partition(":")[0].strip() == "MAPPING":
            try:
                mapping = ast.literal_eval(table.strip())
            except (ValueError, SyntaxError):
                return
            yield from (str(directory) for directory in mapping.values())


def _read_start(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def describe_removed(removed: tuple[RemovedVariable, ...]) -> str:
    """Describe the removed variables and PATH entries in one line."""
    entries = [f"{variable.value or '(empty)'} ({variable.why})" for variable in removed if variable.name == "PATH"]
    others = [variable.name for variable in removed if variable.name != "PATH"]
    path = f"from PATH {', '.join(dict.fromkeys(entries))}" if entries else ""
    return "; ".join(filter(None, (", ".join(dict.fromkeys(others)), path)))


def usable_environment(root: Path, setup: ProjectCommand | None) -> tuple[str | None, str]:
    """Return the activated environment if it can be used, else None and the reason.

    It can be used if it holds dependencies only and no set-up creates another.
    """
    active = clean_environment.active_environment(os.environ)
    if active is None:
        return None, ""
    if setup is not None:
        return None, f"{active} is activated but not used: the set-up creates the environment"
    links = find_checkout_links(Path(active), root)
    if links:
        return None, f"{active} is activated but not used: it has this checkout installed ({links[0]})"
    return active, ""
