"""A stand-in for ``glab api``: its options and GitLab's answers about merge requests, with one project in a file.

It refuses an option that the real one does not have (its page `glab api`), a body whose type is not said, and a second
open request for a branch. `glab mr` fails outside of a repository, as the real one does.
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
from urllib.parse import parse_qs, unquote, urlsplit

STORE = Path("@STORE@")
WITH_VALUE = {"--field", "--form", "--header", "--hostname", "--input", "--method", "--output", "--raw-field"}


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def main():
    words = sys.argv[1:]
    store = json.loads(STORE.read_text())
    store["calls"].append(words)
    STORE.write_text(json.dumps(store))
    if store["fails"]:
        fail(store["fails"])
    if os.isatty(0):
        fail("called with a terminal")
    if words.pop(0) != "api":
        fail("fatal: not a git repository (or any of the parent directories): .git")
    endpoint, options = words.pop(0), {}
    while words:
        option = words.pop(0)
        if option not in WITH_VALUE:
            fail(f"unknown flag: {option}")
        options[option] = words.pop(0)
    if options.get("--hostname") != store["host"]:
        fail(f"none of the git remotes configured for this repository point to a known GitLab host: {options}")
    url = urlsplit(endpoint)
    parts = url.path.split("/")
    projects = {store["project"]: 7, store["fork"]: 8}
    if parts[0] != "projects" or unquote(parts[1]) not in projects or parts[2:3] not in ([], ["merge_requests"]):
        fail("glab: 404 Project Not Found (HTTP 404)")
    number, fields = projects[unquote(parts[1])], {}
    if "--input" in options:
        if options["--input"] != "-" or options.get("--header") != "Content-Type: application/json":
            fail("glab: 415 Unsupported Media Type (HTTP 415)")
        fields = json.load(sys.stdin)
    requests = store["requests"]
    match options.get("--method", "GET"), parts[3:]:
        case "GET", [] if len(parts) == 2:
            print(json.dumps({"id": number, "path_with_namespace": unquote(parts[1])}))
        case "GET", []:
            where = {name: values[0] for name, values in parse_qs(url.query).items()}
            where = {name: value for name, value in where.items() if name not in ("per_page", "page")}
            where["target_project_id"] = number
            rows = [one for one in requests if all(one[name] == value for name, value in where.items())]
            print(json.dumps(rows))
        case "POST", []:
            wanted = {"state": "opened", "source_project_id": number}
            wanted |= {key: fields[key] for key in ("source_branch", "target_branch")}
            if any(wanted.items() <= one.items() for one in requests):
                fail("glab: Another open merge request already exists for this source branch (HTTP 409)")
            iid = len(requests) + 1
            link = f"https://{store['host']}/{store['project']}/-/merge_requests/{iid}"
            ids = {"iid": iid, "web_url": link, "state": "opened", "source_project_id": number}
            requests.append({"description": None, "target_project_id": number, **fields, **ids})
            print(json.dumps(requests[-1]))
        case "PUT", [iid]:
            requests[int(iid) - 1] |= fields
            print(json.dumps(requests[int(iid) - 1]))
        case other:
            fail(f"glab: 405 Method Not Allowed {other} (HTTP 405)")
    STORE.write_text(json.dumps(store))


main()
"""


class GitLabStandIn:
    """The stand-in, first in PATH, and what it stores."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, host: str, project: str) -> None:
        directory.mkdir()
        self._store = directory / "store.json"
        empty: dict[str, Any] = {"host": host, "project": project, "fork": "", "requests": [], "calls": [], "fails": ""}
        self._store.write_text(json.dumps(empty))
        program = directory / "glab"
        program.write_text(f"#!{sys.executable}\n{SCRIPT.replace('@STORE@', str(self._store))}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")

    def read(self) -> dict[str, Any]:
        store: dict[str, Any] = json.loads(self._store.read_text())
        return store

    def change(self, **fields: object) -> None:
        """Change fields of the store: ``fails`` is what every call fails with."""
        self._store.write_text(json.dumps(self.read() | fields))
