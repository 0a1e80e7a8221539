"""A stand-in for ``gh``: its arguments and its JSON, with one repository in a file instead of GitHub.

It refuses an argument or a JSON field that the real one does not have (https://cli.github.com/manual), a working
directory inside a repository, and a terminal.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCRIPT = r"""
import fcntl, json, os, re, sys
from pathlib import Path
from urllib.parse import parse_qsl

STORE = Path("@STORE@")
OPTIONS = {
    ("pr", "view"): {"--json", "--repo"},
    ("run", "view"): {"--job", "--log-failed", "--repo"},
    ("api", "REPOS"): {"--hostname", "--method", "--header", "--input"},
    ("issue", "view"): {"--json", "--repo"},
}
FIELDS = {
    "pr": {
        "number", "url", "body", "title", "state", "headRefName", "baseRefName", "headRefOid",
        "headRepositoryOwner", "statusCheckRollup",
    },
    "issue": {"number", "url", "body", "title", "state", "author", "labels"},
}


SWITCHES = {"--log-failed"}
PULLS = re.compile(r"repos/([\w.-]+/[\w.-]+)/pulls(?:/(\d+))?")
LISTS = re.compile(r"repos/([\w.-]+/[\w.-]+)/(pulls|issues)/(\d+)/(comments|reviews)(?:\?(.*))?")


def fail(text, code=1):
    print(text, file=sys.stderr)
    sys.exit(code)


def head_of(origin, branch):
    # The commit of a branch of origin.
    return Path(origin, "refs/heads", branch).read_text().strip()


def rest(entry):
    # A pull request as the REST interface shows it.
    return {"number": entry["number"], "html_url": entry["url"], "body": entry["body"], "state": "open"}


def api(store, address, options):
    # One page of a list of comments, or pull requests.
    address, _, query = address.partition("?")
    match = PULLS.fullmatch(address)
    if match is not None:
        if f"{options.get('--hostname', 'github.com')}/{match[1]}" != store["repo"]:
            fail(f"gh: Not Found (HTTP 404): {address}")
        return pulls(store, match[1].partition("/")[0], match[2], query, options)
    address += f"?{query}" if query else ""
    match = LISTS.fullmatch(address)
    if match is None or f"{options.get('--hostname', 'github.com')}/{match[1]}" != store["repo"]:
        fail(f"gh: Not Found (HTTP 404): {address}")
    pairs = (pair.partition("=") for pair in (match[5] or "").split("&") if pair)
    query = {name: int(value) for name, _, value in pairs}
    size, page = query.pop("per_page", 30), query.pop("page", 1)
    if query or not 1 <= size <= 100:
        fail("gh: Validation Failed (HTTP 422)")
    rows = [row for row in store["comments"] if row["list"] == f"{match[2]}/{match[3]}/{match[4]}"]
    return [{name: value for name, value in row.items() if name != "list"} for row in rows[(page - 1) * size :][:size]]


def pulls(store, owner, number, query, options):
    # Find, open or change a pull request.
    requests, fields = store["requests"], {}
    if "--input" in options:
        if options["--input"] != "-" or options.get("--header") != "Content-Type: application/json":
            fail("gh: Unsupported Media Type (HTTP 415)")
        fields = json.load(sys.stdin)
    match options.get("--method", "GET"), number:
        case "GET", None:
            where = dict(parse_qsl(query))
            known, _, head = where["head"].partition(":")
            return [
                rest(one) for one in requests
                if (one["headRefName"], one["baseRefName"], one["state"]) == (head, where["base"], "OPEN")
                and ((one["headRepositoryOwner"] or {}).get("login") or owner) == known
            ]
        case "POST", None:
            number = len(requests) + 1
            known, _, head = fields["head"].partition(":")
            requests.append({
                "number": number, "url": f"https://{store['repo']}/pull/{number}", "body": fields["body"],
                "title": fields["title"], "state": "OPEN", "headRefName": head, "baseRefName": fields["base"],
                "headRepositoryOwner": {"login": known}, "headRefOid": "", "statusCheckRollup": [],
            })
            return rest(requests[-1])
        case "PATCH", number:
            one = next(one for one in requests if str(one["number"]) == number)
            one |= fields
            return rest(one)
    fail("gh: Method Not Allowed (HTTP 405)")


def main():
    words = sys.argv[1:]
    if any(Path(path, ".git").exists() for path in (Path.cwd(), *Path.cwd().parents)):
        fail("called inside a repository")
    if os.isatty(0):
        fail("called with a terminal")
    lock = open(f"{STORE}.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    store = json.loads(STORE.read_text())
    store["calls"].append(words)
    STORE.write_text(json.dumps(store))
    failure = next((text for prefix, text in store["fails"].items() if " ".join(words).startswith(prefix)), "")
    if failure:
        fail(failure, 4)
    printed = next((text for prefix, text in store["prints"].items() if " ".join(words).startswith(prefix)), None)
    if printed is not None:
        print(printed)
        sys.exit(0)
    command, left, options = tuple(words[:2]), [], {}
    if command[0] == "api":
        command, left = ("api", "REPOS"), [words[1]]
    if command not in OPTIONS:
        fail(f"unknown command {command}")
    words = words[2:]
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            left.append(word)
        elif word in SWITCHES & OPTIONS[command]:
            options[word] = True
        elif word in OPTIONS[command]:
            options[word] = words.pop(0)
        else:
            fail(f"unknown flag: {word}")
    if command[0] == "api":
        print(json.dumps(api(store, left[0], options)))
        STORE.write_text(json.dumps(store))
        return
    if options.get("--repo") != store["repo"]:
        fail(f"GraphQL: Could not resolve to a Repository with the name {options.get('--repo')}")
    unknown = set(filter(None, options.get("--json", "").split(","))) - FIELDS.get(command[0], set())
    if unknown:
        fail(f"Unknown JSON field: {unknown}")

    def shown(entry):
        return {name: entry[name] for name in options["--json"].split(",")}

    requests = store["requests"]
    match command:
        case ("pr", "view"):
            shows = [one for one in requests if str(one["number"]) == left[0]]
            if not shows:
                fail(f"GraphQL: Could not resolve to a PullRequest with the number of {left[0]}.")
            origin = store["origin"] and head_of(store["origin"], shows[0]["headRefName"])
            print(json.dumps(shown(shows[0] | ({"headRefOid": origin} if origin else {}))))
        case ("run", "view"):
            if "--log-failed" not in options or options.get("--job") not in store["logs"]:
                fail("failed to get run log: log not found")
            sys.stdout.write(store["logs"][options["--job"]])
        case ("issue", "view"):
            issues = [one for one in store["issues"] if str(one["number"]) == left[0]]
            if not issues:
                what = "an issue or pull request with the number of"
                fail(f"GraphQL: Could not resolve to {what} {left[0]}. (repository.issue)")
            print(json.dumps(shown(issues[0])))
    STORE.write_text(json.dumps(store))


main()
"""


class ForgeStandIn:
    """The stand-in, first in PATH, and what it stores."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, repo: str = "github.com/acme/shop") -> None:
        directory.mkdir()
        self._store = directory / "store.json"
        lists: dict[str, Any] = {"requests": [], "issues": [], "comments": [], "calls": []}
        self._write({"repo": repo, "origin": "", **lists, "fails": {}, "prints": {}, "logs": {}})
        program = directory / "gh"
        program.write_text(f"#!{sys.executable} -IS\n{SCRIPT.replace('@STORE@', str(self._store))}")
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

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        """The store, locked: a crew may call the program meanwhile."""
        with Path(f"{self._store}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            store = self._read()
            yield store
            self._write(store)

    def change_request(self, number: int, **fields: object) -> None:
        with self._changed() as store:
            store["requests"][number - 1] |= fields

    def follow(self, origin: Path) -> None:
        """The newest commit of a pull request is that of its branch in this bare repository."""
        with self._changed() as store:
            store["origin"] = str(origin)

    def add_issue(self, **fields: object) -> None:
        with self._changed() as store:
            store["issues"].append(fields)

    def check(self, name: str, conclusion: str, job: int, log: str | None = None, run: int = 900) -> None:
        """A job of a workflow ``ci`` ended: its entry in ``statusCheckRollup``, which replaces one of its name."""
        with self._changed() as store:
            entry = {
                "__typename": "CheckRun",
                "name": name,
                "workflowName": "ci",
                "status": "COMPLETED",
                "conclusion": conclusion,
                "startedAt": f"2026-01-01T12:00:{job % 60:02}Z",
                "completedAt": "2026-01-01T12:01:00Z",
                "detailsUrl": f"https://{store['repo']}/actions/runs/{run}/job/{job}",
            }
            rollup = store["requests"][-1]["statusCheckRollup"]
            store["requests"][-1]["statusCheckRollup"] = [row for row in rollup if row["name"] != name] + [entry]
            if log is not None:
                store["logs"][str(job)] = log

    def comment(self, number: int, body: str, association: str = "MEMBER", login: str = "ann", **fields: Any) -> None:
        """A comment on the conversation; with ``path`` on a line of a file; with ``state`` a review."""
        kind, anchor = "issues/1/comments", f"issuecomment-{number}"
        if "path" in fields:
            kind, anchor = "pulls/1/comments", f"discussion_r{number}"
        elif "state" in fields:
            kind, anchor = "pulls/1/reviews", f"pullrequestreview-{number}"
        with self._changed() as store:
            row = {
                "list": kind,
                "id": number,
                "html_url": f"https://{store['repo']}/pull/1#{anchor}",
                "user": {"login": login, "type": "User"},
                "author_association": association,
                "body": body,
            }
            store["comments"].append(row | fields)

    def fail(self, message: str, command: str = "") -> None:
        """Every call that begins with ``command`` fails from now on; an empty message: none."""
        with self._changed() as store:
            store["fails"] = {command: message} if message else {}

    def print(self, text: str, command: str) -> None:
        """Every call that begins with ``command`` prints this from now on."""
        with self._changed() as store:
            store["prints"] = {command: text}
