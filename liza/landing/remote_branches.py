"""Read and push branches of remotes. No call asks for a password or runs a hook.

git gets the URL from Liza, under a name of its own: so no remote branch of the person moves.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from liza.git.git_refs import HEADS, find_free_name, list_branches
from liza.git.runner import Git, GitResult
from liza.landing.rules import remote_choice
from liza.landing.rules.push_address import LAND_COMMAND, PUSH_COMMAND, accept_command, strip_login
from liza.landing.rules.push_rules import PushFailure, classify_failure, parse_ref_results
from liza.landing.rules.remote_choice import ORIGIN
from liza.landing.rules.remote_urls import Forge, find_forge_repository, hide_credentials
from liza.model.errors import GitFailed, LizaError, Missing, Refused
from liza.model.value_classes import Value

REMOTE = ORIGIN
"""Name of the push remote in refs and messages. The person's name for it is ``Remote.name``."""
NETWORK_LIMIT = 120.0
"""Seconds for one call of git over the network."""
MAX_REASON = 400
"""Characters of what git and the remote printed, in an error."""
_PUSHED = f"refs/liza/pushed/{REMOTE}/"


class BranchPush(Value):
    """A commit for a branch of the remote, which still has the commit ``expected`` there; None: no such branch."""

    branch: str
    commit: str
    expected: str | None

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"


class Remote(Value):
    """A remote. ``urls``: where git pushes, then the configured URL before ``url.*.insteadOf``."""

    git: Git
    urls: tuple[str, ...]
    name: str = REMOTE

    @property
    def address(self) -> str:
        """Where git pushes, without credentials."""
        return strip_login(self.urls[0])

    @property
    def project_name(self) -> str:
        """The repository that the URLs name at a forge, HOST/OWNER/NAME; else the address."""
        repository = find_forge_repository(self.urls)
        return self.address if repository is None else repository.full_name

    def fetch_and_sync_command(self, branch: str) -> str:
        """Return the command with which a person brings what others pushed to ``branch`` to integration."""
        local = f"{self.name}-{branch}"
        fetch = shlex.join(["git", "fetch", self.name, f"refs/heads/{branch}:refs/heads/{local}"])
        return f"{fetch} && liza sync {shlex.quote(local)}"

    def fetch_commit(self, branch: str) -> None:
        """Fetch the commits of a branch, without a ref: nothing of the person's changes. Raises Missing, GitFailed."""
        quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--recurse-submodules=no")
        result = self._call("fetch", *quiet, patterns=[f"refs/heads/{branch}"])
        if result.code != 0:
            raise self._explain(result)

    def read_branches(self, *branches: str) -> dict[str, str]:
        """Return the tips of those of ``branches`` that the remote has, and of others whose names begin like theirs:
        one of them may exclude a branch. Raises Missing, GitFailed.
        """
        patterns = dict.fromkeys(f"{HEADS}{branch.partition('/')[0]}*" for branch in branches)
        result = self._call("ls-remote", "--refs", "--", patterns=tuple(patterns))
        if result.code != 0:
            raise self._explain(result)
        rows = (line.partition("\t") for line in result.stdout.decode("utf-8", "replace").splitlines())
        return {name.removeprefix(HEADS): commit for commit, _, name in rows if name.startswith(HEADS)}

    def push_commit(self, commit: str, branch: str, expected: str | None) -> str:
        """Push ``commit`` to ``branch`` if the remote still has ``expected`` there, None: no such branch.

        Return what the remote printed. Raises Refused if the branch moved or the remote rejects it, Missing, GitFailed.
        """
        result = self._push([BranchPush(branch, commit, expected)])
        if result.code != 0:
            other = find_free_name(branch, [branch, *list_branches(self.git)])
            raise self._explain(result, f"{LAND_COMMAND} --head {shlex.quote(other)}")
        self.git.out("update-ref", _PUSHED + branch, commit)
        lines = (line for line in result.stderr.splitlines() if line.startswith("remote:"))
        return "\n".join(line.removeprefix("remote:").strip() for line in lines)

    def push_branches(self, pushes: Sequence[BranchPush]) -> dict[str, LizaError]:
        """Push all branches in one call. Return the error of each branch that moved or that the remote rejects.

        Raises Missing, GitFailed if the remote answered for none of them.
        """
        result = self._push(pushes)
        results = parse_ref_results(result.stdout.decode("utf-8", "replace"))
        if result.code != 0 and not any(push.ref in results for push in pushes):
            raise self._explain(result)
        printed = "\n".join(line for line in result.stderr.splitlines() if line.startswith("remote:"))
        errors: dict[str, LizaError] = {}
        for push in pushes:
            reason = results.get(push.ref, "the remote did not answer for it")
            if reason is not None:
                # git and hooks name no branch in these lines.
                text = f"{push.branch}: {reason}\n{printed}".encode()
                error = self._explain(GitResult(1, text, ""), shlex.join(["git", "push", self.name, push.ref]))
                error.hint = PUSH_COMMAND if error.hint == LAND_COMMAND else error.hint
                errors[push.branch] = error
        return errors

    def _push(self, pushes: Sequence[BranchPush]) -> GitResult:
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
        leases = (f"--force-with-lease={push.ref}:{push.expected or ''}" for push in pushes)
        return self._call("push", *options, *leases, patterns=[f"{push.commit}:{push.ref}" for push in pushes])

    def last_pushed(self, branch: str) -> str | None:
        """Return the commit that this crew pushed last to ``branch``. Raises GitFailed."""
        return self.git.find_commit(_PUSHED + branch)

    def _call(self, *args: str, patterns: Sequence[str]) -> GitResult:
        """Run git on the remote's URL. ``patterns``: the refs after the URL. Raises GitFailed if it takes too long."""
        git, name = _name_remote(_network_git(self.git), self.urls[0])
        try:
            return git.run(*args, name, *patterns)
        except GitFailed as error:
            raise GitFailed(error.message, error.hint or f"git ls-remote {self.name}") from error

    def _explain(self, result: GitResult, after_rejection: str = "") -> LizaError:
        """Return the error for a failed call, with the command that shows or removes its cause."""
        output = f"{result.stdout.decode('utf-8', 'replace')}\n{result.stderr}"
        failure = classify_failure(output)
        lines = [line.strip().lstrip("!\t") for line in output.splitlines() if line.strip()]
        reason = hide_credentials("; ".join(dict.fromkeys(lines)))[:MAX_REASON]
        message = f"{self.name} ({self.address}): {failure.value}: {reason}"
        match failure:
            case PushFailure.MOVED:
                return Refused(message, LAND_COMMAND)
            case PushFailure.REJECTED:
                return Refused(message, after_rejection)
        # A person's own git may ask, and stores the answer if a credential helper is configured.
        return Missing(message, f"git ls-remote {self.name}")


def find_remote(git: Git, base: str | None = None) -> Remote:
    """Return the remote to push to, ``origin`` if no setting of git names another. ``base``: the branch to land on.

    Raises Missing without it, Refused if it has several URLs, GitFailed.
    """
    return _read_remote(git, remote_choice.find_push_remote(_read_config(git), base), "--push")


def find_project(push: Remote, base: str | None = None) -> Remote:
    """Return the remote of the project, where pull requests go: ``push`` itself, unless that is a person's fork.

    Raises Refused if the settings of git name several, Missing, GitFailed.
    """
    git, config = push.git, _read_config(push.git)
    names = remote_choice.find_projects(config, base, push.name)
    if names == (push.name,):
        return push
    missing = next((name for name in names if f"remote.{name}.url" not in config), None)
    if missing is not None:
        add = shlex.join(["git", "remote", "add", "upstream", missing])
        message = f"the chosen project of pull requests is {missing}, and no remote has this URL"
        raise Refused(message, f"{add} && {accept_command(LAND_COMMAND, push.address)}")
    projects = [_read_remote(git, name) for name in names]
    if len(projects) == 1:
        return projects[0]
    choices = " or to ".join(f"{project.name} ({project.project_name})" for project in projects)
    commands = ", or: ".join(f"{_choose_command(project)} && {_land_command(project, push)}" for project in projects)
    raise Refused(f"a pull request can go to {choices}: the settings of git do not say which is the project", commands)


def find_default_branch(remote: Remote) -> str | None:
    """Return the default branch of a remote as a clone records it; None if it is unknown. Raises GitFailed."""
    prefix = f"refs/remotes/{remote.name}/"
    result = remote.git.run("symbolic-ref", "-q", f"{prefix}HEAD", codes=(0, 1, 128))
    return result.stdout.decode("utf-8", "replace").strip().removeprefix(prefix) or None


def _read_config(git: Git) -> dict[str, str]:
    """Return the settings of remotes and branches, by key. Raises GitFailed."""
    output = git.run("config", "--get-regexp", "-z", r"^(remote|branch)\.", codes=(0, 1)).stdout
    rows = output.decode("utf-8", "replace").split("\0")
    return {key: value for key, _, value in (row.partition("\n") for row in rows) if key}


def _read_remote(git: Git, name: str, *options: str) -> Remote:
    result = git.run("remote", "get-url", *options, "--all", name)
    url, *others = result.stdout.decode("utf-8", "replace").split("\n")
    if result.code != 0 or not url:
        step = f'git remote add {name} "…"'
        raise Missing(f"the repository has no remote {name}", step)
    if options and any(others):
        addresses = ", ".join(strip_login(address) for address in (url, *others) if address)
        raise Refused(f"{name} has several addresses to push to: {addresses}", "git remote -v")
    configured = git.run("config", "--get", f"remote.{name}.url", codes=(0, 1)).stdout.decode("utf-8", "replace")
    return Remote(git, tuple(dict.fromkeys((url, configured.strip()))), name)


def _choose_command(project: Remote) -> str:
    """Return the command that says which remote is the project, as the forge's own program records it."""
    repository = find_forge_repository(project.urls)
    forge = (repository and repository.forge) or Forge.GITHUB
    return shlex.join(["git", "config", f"remote.{project.name}.{remote_choice.RESOLVED_KEYS[forge]}", "base"])


def _land_command(project: Remote, push: Remote) -> str:
    # The address of a project that is not the push remote has to be accepted, too.
    return LAND_COMMAND if project.name == push.name else accept_command(LAND_COMMAND, push.address)


def _network_git(git: Git) -> Git:
    """Return git for the network: ssh asks nothing, and a call has a limit of its own. Raises GitFailed."""
    configured: Sequence[str] = git.run("config", "--get", "core.sshCommand", codes=(0, 1)).stdout.decode().split("\n")
    command = configured[0].strip() or "ssh"
    return git.with_timeout(NETWORK_LIMIT).with_environment(GIT_SSH_COMMAND=f"{command} -oBatchMode=yes")


def _name_remote(git: Git, url: str) -> tuple[Git, str]:
    """Return git and a name that means ``url`` there.

    git would apply ``url.*.insteadOf`` to the URL itself a second time. With the name of a configured remote it would
    move remote branches of the person.
    """
    name, base = f"liza-{REMOTE}", f"url.{url}"
    return git.with_config((f"{base}.insteadOf", name), (f"{base}.pushInsteadOf", name)), name
