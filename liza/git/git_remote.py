"""A remote as git reaches it: at an address that a person has accepted, without a question, a hook or a name of theirs.

git gets the URL from Liza, under a name of its own: so no remote branch of the person moves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from liza.config import confirmed_settings
from liza.git.git_refs import HEADS
from liza.git.rules import push_address
from liza.git.rules.push_address import (
    LAND_COMMAND,
    ORIGIN,
    PushAddress,
    PushFailure,
    classify_failure,
    strip_login,
)
from liza.git.rules.remote_urls import hide_credentials
from liza.git.runner import Git, GitResult
from liza.model.errors import GitTimeout, LizaError, Missing, Refused
from liza.model.value_classes import Value

NETWORK_LIMIT = 120.0
"""Seconds for one call of git over the network."""
MAX_REASON: Final = 400
"""Characters of what git and the remote printed, in an error."""
_NO_SSH: Final = re.compile(r"(https?|git|file)://|[^:]*/|[^:]*$")
"""URLs that git does not reach by ssh: for others a person may have configured how ssh is started."""
_NO_FAULT = ("To ", "*", "=", "+", " ", "Done")
PUSH_OPTIONS = ("--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
FETCH_OPTIONS = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--recurse-submodules=no")


class GitRemote(Value):
    """A remote. ``urls``: where git pushes, then the configured URL before ``url.*.insteadOf``."""

    git: Git
    urls: tuple[str, ...]
    name: str = ORIGIN

    @property
    def address(self) -> str:
        """Where git pushes, without credentials."""
        return strip_login(self.urls[0])

    def call(self, *args: str, patterns: Sequence[str]) -> GitResult:
        """Run git on the remote's URL. ``patterns``: the refs after the URL. Raises GitFailed if it takes too long."""
        git, name = name_remote(_network_git(self.git, self.urls[0]).with_timeout(NETWORK_LIMIT), self.urls[0])
        try:
            return git.run(*args, name, *patterns)
        except GitTimeout as error:
            raise GitTimeout(error.message, error.hint or f"git ls-remote {self.name}") from error

    def list_refs(self, *patterns: str) -> dict[str, str]:
        """Return the refs of the remote that match one of the patterns, with their commits. Raises Missing,
        GitFailed."""
        result = self.call("ls-remote", "--refs", "--", patterns=patterns)
        if result.code != 0:
            raise self.explain(result)
        rows = (line.partition("\t") for line in result.stdout.decode("utf-8", "replace").splitlines())
        return {name: commit for commit, _, name in rows}

    def read_branches(self, *branches: str) -> dict[str, str]:
        """Return the tips of those of ``branches`` that the remote has, and of others whose names begin like theirs:
        one of them may exclude a branch. Raises Missing, GitFailed.
        """
        patterns = dict.fromkeys(f"{HEADS}{branch.partition('/')[0]}*" for branch in branches)
        refs = self.list_refs(*patterns)
        return {name.removeprefix(HEADS): commit for name, commit in refs.items() if name.startswith(HEADS)}

    def explain(self, result: GitResult, after_rejection: str = "", again: str = LAND_COMMAND) -> LizaError:
        """Return the error for a failed call, with the command that shows or removes its cause."""
        failure, message = self.describe_failure(result)
        match failure:
            case PushFailure.MOVED:
                return Refused(message, again)
            case PushFailure.REJECTED:
                return Refused(message, after_rejection)
        # A person's own git may ask, and stores the answer if a credential helper is configured.
        return Missing(message, f"git ls-remote {self.name}")

    def describe_failure(self, result: GitResult) -> tuple[PushFailure, str]:
        """Return why a call failed, and a sentence about it."""
        output = f"{result.stdout.decode('utf-8', 'replace')}\n{result.stderr}"
        failure = classify_failure(output)
        # Of a push of several branches only the lines of those that were not updated.
        lines = [line.strip().lstrip("!\t") for line in output.splitlines() if not line.startswith(_NO_FAULT)]
        reason = hide_credentials("; ".join(dict.fromkeys(filter(None, lines))))[:MAX_REASON]
        return failure, f"{self.name} ({self.address}): {failure.value}: {reason}"


def read_urls(git: Git, name: str, *options: str) -> tuple[str, ...]:
    """Return where git fetches from a remote, with the option ``--push`` where it pushes, then the configured URL.

    Raises Missing without the remote, Refused if it has several URLs to push to, GitFailed.
    """
    result = git.run("remote", "get-url", *options, "--all", name)
    url, *others = result.stdout.decode("utf-8", "replace").split("\n")
    if result.code != 0 or not url:
        step = f'git remote add {name} "…"'
        raise Missing(f"the repository has no remote {name}", step)
    if options and any(others):
        addresses = ", ".join(strip_login(address) for address in (url, *others) if address)
        raise Refused(f"{name} has several addresses to push to: {addresses}", "git remote -v")
    configured = git.run("config", "--get", f"remote.{name}.url", codes=(0, 1)).stdout.decode("utf-8", "replace")
    return tuple(dict.fromkeys((url, configured.strip())))


def read_accepted(pins: Path) -> PushAddress | None:
    """Return the address that a person has accepted, None without one. Raises Missing."""
    return push_address.parse_accepted(confirmed_settings.load_pins(pins).get(confirmed_settings.ORIGIN_KEY))


def _network_git(git: Git, url: str) -> Git:
    """Return git for the network: ssh asks nothing. Raises GitFailed."""
    if _NO_SSH.match(url):
        return git
    configured: Sequence[str] = git.run("config", "--get", "core.sshCommand", codes=(0, 1)).stdout.decode().split("\n")
    command = configured[0].strip() or "ssh"
    return git.with_environment(GIT_SSH_COMMAND=f"{command} -oBatchMode=yes")


def name_remote(git: Git, url: str) -> tuple[Git, str]:
    """Return git and a name that means ``url`` there.

    git would apply ``url.*.insteadOf`` to the URL itself a second time. With the name of a configured remote it would
    move remote branches of the person.
    """
    name, base = f"liza-{ORIGIN}", f"url.{url}"
    return git.with_config((f"{base}.insteadOf", name), (f"{base}.pushInsteadOf", name)), name
