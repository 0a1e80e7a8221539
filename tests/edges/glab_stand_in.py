"""A stand-in for ``glab api``: its arguments, and what GitLab's REST interface tells about one merge request.

It refuses an argument that the real one does not have (https://docs.gitlab.com/cli/), an address or a parameter that
the interface does not have (https://docs.gitlab.com/api/), a working directory inside a repository, and a terminal.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = r"""
import json, os, sys
from pathlib import Path

STORE = Path("@STORE@")


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def api(store, address, options):
    path, _, query = address.partition("?")
    project = f"projects/{store['project']}"
    if options.get("--hostname") != store["host"] or not path.startswith(project):
        fail("404 Project Not Found")
    name = path.removeprefix(project)
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    if any(key not in ("per_page", "page", "user_ids%5B%5D") for key, _, _ in pairs):
        fail("400 Bad Request")
    if name not in store["answers"]:
        fail(f"404 Not Found: {name}")
    answer = store["answers"][name]
    if not isinstance(answer, list):
        return answer
    users = {int(value) for key, _, value in pairs if key == "user_ids%5B%5D"}
    rows = [row for row in answer if not users or row["id"] in users]
    size, page = (next((int(value) for key, _, value in pairs if key == name), usual)
                  for name, usual in (("per_page", 20), ("page", 1)))
    return rows[(page - 1) * size :][:size]


def main():
    words = sys.argv[1:]
    if any(Path(path, ".git").exists() for path in (Path.cwd(), *Path.cwd().parents)) or os.isatty(0):
        fail("called inside a repository, or with a terminal")
    store = json.loads(STORE.read_text())
    if words.pop(0) != "api":
        fail("unknown command")
    rest, options = [], {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            rest.append(word)
        elif word != "--hostname":
            fail(f"unknown flag: {word}")
        else:
            options[word] = words.pop(0)
    answer = api(store, rest[0], options)
    sys.stdout.write(answer if isinstance(answer, str) else json.dumps(answer))


main()
"""


class GlabStandIn:
    """The stand-in, first in PATH, and what it answers: by the address below ``project``."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, project: str = "acme%2Fgroup%2Fshop/") -> None:
        directory.mkdir()
        self._store = directory / "store.json"
        self._project = project
        self.answers: dict[str, Any] = {}
        program = directory / "glab"
        program.write_text(f"#!{sys.executable} -IS\n{SCRIPT.replace('@STORE@', str(self._store))}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        self.save()

    def save(self) -> None:
        """The program answers so from now on."""
        store = {"host": "gitlab.example", "project": self._project, "answers": self.answers}
        self._store.write_text(json.dumps(store))
