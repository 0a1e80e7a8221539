"""Look into a Python environment of the person's: does it hold dependencies only, or the checkout itself as well?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from liza.rules.project.clean_environment import Removed

_MOST = 1 << 20  # bytes of a file in which a path is looked for


def installs(environment: Path, root: Path) -> tuple[str, ...]:
    """The files of an environment that make Python import from ``root``, or from a copy of it that was installed.

    Each with the directory that it leads to. Without one the environment holds dependencies only.
    """
    home = root.resolve()
    found = []
    for site in sorted(environment.glob("lib*/python3*/*-packages")):
        for name, target in _targets(site):
            real = Path(os.path.realpath(site / target))
            if real.is_relative_to(home) and not real.is_relative_to(environment.resolve()):
                found.append(f"{name} leads to {real}")
    return tuple(dict.fromkeys(found))


def _targets(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.glob("*.pth")):
        lines = _text(path).splitlines()
        yield from (
            (path.name, line.strip()) for line in lines if line.strip() and not line.startswith(("import", "#"))
        )
    for path in sorted(site.glob("*.egg-link")):
        yield path.name, _text(path).partition("\n")[0].strip()
    for path in sorted(site.glob("__editable___*_finder.py")):
        yield from ((path.name, target) for target in _mapped(_text(path)))
    for path in sorted(site.glob("*.dist-info/direct_url.json")):
        target = source(path.parent)
        if target is not None:
            yield f"{path.parent.name}/{path.name}", str(target)


def source(info: Path) -> Path | None:
    """The directory that a distribution (its ``.dist-info``) was installed from, or None."""
    try:
        url = urlsplit(json.loads(_text(info / "direct_url.json"))["url"])
    except (ValueError, KeyError, TypeError):
        return None
    return Path(os.path.realpath(unquote(url.path))) if url.scheme == "file" else None


def _mapped(finder: str) -> Iterator[str]:
    """The directories in the table of an editable install that a finder carries out."""
    import ast

    for line in finder.splitlines():
        name, _, table = line.partition("=")
        if name.partition(":")[0].strip() == "MAPPING":
            try:
                mapping = ast.literal_eval(table.strip())
            except (ValueError, SyntaxError):
                return
            yield from (str(place) for place in mapping.values())


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST).decode(errors="replace")
    except OSError:
        return ""


def told(removed: tuple[Removed, ...]) -> str:
    """What was removed from the environment, in one line."""
    entries = [f"{one.value or '(empty)'} ({one.why})" for one in removed if one.name == "PATH"]
    others = [one.name for one in removed if one.name != "PATH"]
    path = f"from PATH {', '.join(dict.fromkeys(entries))}" if entries else ""
    return "; ".join(filter(None, (", ".join(dict.fromkeys(others)), path)))
