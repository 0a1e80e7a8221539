"""A stand-in for ``gh``: its arguments and its JSON, with one repository in a file instead of GitHub.

It refuses an argument or a JSON field that the real one does not have (https://cli.github.com/manual), a working
directory inside a repository, and a terminal.
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
import json, os, subprocess, sys
from pathlib import Path

STORE = Path("@STORE@")
OPTIONS = {
    ("pr", "list"): {"--head", "--base", "--state", "--json", "--repo"},
    ("pr", "create"): {"--head", "--base", "--title", "--body-file", "--repo"},
    ("pr", "edit"): {"--body-file", "--repo"},
    ("issue", "view"): {"--json", "--repo"},
}
FIELDS = {
    "pr": {"number", "url", "body", "title", "state", "headRefName", "baseRefName", "headRefOid", "isCrossRepository"},
    "issue": {"number", "url", "body", "title", "state", "author", "labels"},
}


def fail(text, code=1):
    print(text, file=sys.stderr)
    sys.exit(code)


def main():
    words = sys.argv[1:]
    if subprocess.run(["git", "rev-parse"], capture_output=True).returncode == 0:
        fail("called inside a repository")
    if os.isatty(0):
        fail("called with a terminal")
    store = json.loads(STORE.read_text())
    store["calls"].append(words)
    STORE.write_text(json.dumps(store))
    if store["fails"]:
        fail(store["fails"], 4)
    command, rest, options = tuple(words[:2]), [], {}
    if command not in OPTIONS:
        fail(f"unknown command {command}")
    words = words[2:]
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            rest.append(word)
        elif word in OPTIONS[command]:
            options[word] = words.pop(0)
        else:
            fail(f"unknown flag: {word}")
    if options.get("--repo") != store["repo"]:
        fail(f"GraphQL: Could not resolve to a Repository with the name {options.get('--repo')}")
    unknown = set(filter(None, options.get("--json", "").split(","))) - FIELDS[command[0]]
    if unknown:
        fail(f"Unknown JSON field: {unknown}")

    def shown(entry):
        return {name: entry[name] for name in options["--json"].split(",")}

    body = sys.stdin.read() if options.get("--body-file") == "-" else None
    requests = store["requests"]
    match command:
        case ("pr", "list"):
            where = {"headRefName": options["--head"], "baseRefName": options["--base"]}
            where["state"] = options["--state"].upper()
            rows = [one for one in requests if all(one[name] == value for name, value in where.items())]
            print(json.dumps([shown(one) for one in rows]))
        case ("pr", "create"):
            number = len(requests) + 1
            url = f"https://{store['repo']}/pull/{number}"
            requests.append({
                "number": number, "url": url, "body": body, "title": options["--title"], "state": "OPEN",
                "headRefName": options["--head"], "baseRefName": options["--base"], "isCrossRepository": False,
            })
            print(url)
        case ("pr", "edit"):
            one = next(one for one in requests if str(one["number"]) == rest[0])
            one["body"] = body
            print(one["url"])
        case ("issue", "view"):
            issues = [one for one in store["issues"] if str(one["number"]) == rest[0]]
            if not issues:
                what = "an issue or pull request with the number of"
                fail(f"GraphQL: Could not resolve to {what} {rest[0]}. (repository.issue)")
            print(json.dumps(shown(issues[0])))
    STORE.write_text(json.dumps(store))


main()
"""


class ForgeStandIn:
    """The stand-in, first in PATH, and what it stores."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, repo: str = "github.com/acme/shop") -> None:
        directory.mkdir()
        self._store = directory / "store.json"
        self._write({"repo": repo, "requests": [], "issues": [], "calls": [], "fails": ""})
        program = directory / "gh"
        program.write_text(f"#!{sys.executable}\n{SCRIPT.replace('@STORE@', str(self._store))}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")

    def _write(self, store: dict[str, Any]) -> None:
        self._store.write_text(json.dumps(store))

    def _read(self) -> dict[str, Any]:
        store: dict[str, Any] = json.loads(self._store.read_text())
        return store

    @property
    def requests(self) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = self._read()["requests"]
        return requests

    @property
    def calls(self) -> list[list[str]]:
        calls: list[list[str]] = self._read()["calls"]
        return calls

    def change_request(self, number: int, **fields: object) -> None:
        store = self._read()
        store["requests"][number - 1] |= fields
        self._write(store)

    def add_issue(self, **fields: object) -> None:
        store = self._read()
        store["issues"].append(fields)
        self._write(store)

    def fail(self, message: str) -> None:
        """Every call fails from now on; an empty text: none."""
        self._write(self._read() | {"fails": message})
