"""The remotes to push to and of the project: only at addresses that a person has accepted, which the pins keep.

No call asks for a password or runs a hook. The push remote is called ``origin`` here, which it is if no setting of git
names another.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from liza.config import confirmed_settings
from liza.crew.crew import Crew
from liza.git.git_refs import find_free_name, list_branches
from liza.git.git_remote import FETCH_OPTIONS, PUSH_OPTIONS, GitRemote, read_accepted, read_urls
from liza.git.rules import push_address
from liza.git.rules.push_address import (
    LAND_COMMAND,
    ORIGIN,
    PUSH_COMMAND,
    PushAddress,
    accept_command,
    strip_login,
)
from liza.git.rules.remote_urls import Forge, find_forge_repository
from liza.git.runner import Git, GitResult
from liza.landing.rules import push_rules
from liza.landing.rules.remote_failures import RemoteFailure, count_failure
from liza.model.errors import LizaError, Refused, UsageError
from liza.model.paths import Paths
from liza.model.value_classes import Value, replace
from liza.programs.session.run_directory import read_struct
from liza.system import atomic, file_growth

REMOTE = ORIGIN
"""Name of the push remote in refs and messages. The person's name for it is ``Remote.name``."""
_PUSHED = f"refs/liza/pushed/{REMOTE}/"


class BranchPush(Value):
    """A commit for a branch of the remote, which still has the commit ``expected`` there; None: no such branch."""

    branch: str
    commit: str
    expected: str | None

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"


class Remote(GitRemote):
    """A remote that branches are pushed to, or that pull requests go to."""

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
        result = self.call("fetch", *FETCH_OPTIONS, patterns=[f"refs/heads/{branch}"])
        if result.code != 0:
            raise self.explain(result)

    def push_commit(self, commit: str, branch: str, expected: str | None) -> str:
        """Push ``commit`` to ``branch`` if the remote still has ``expected`` there, None: no such branch.

        Return what the remote printed. Raises Refused if the branch moved or the remote rejects it, Missing, GitFailed.
        """
        result = self._push([BranchPush(branch, commit, expected)])
        if result.code != 0:
            other = find_free_name(branch, [branch, *list_branches(self.git)])
            raise self.explain(result, f"{LAND_COMMAND} --head {shlex.quote(other)}")
        self.git.out("update-ref", _PUSHED + branch, commit)
        lines = (line for line in result.stderr.splitlines() if line.startswith("remote:"))
        return "\n".join(line.removeprefix("remote:").strip() for line in lines)

    def push_branches(self, pushes: Sequence[BranchPush]) -> LizaError | None:
        """Push all branches in one call. Return why some of them were not updated. Raises GitFailed."""
        result = self._push(pushes)
        step = shlex.join(["git", "push", self.name, *(push.ref for push in pushes)])
        return None if result.code == 0 else self.explain(result, step, PUSH_COMMAND)

    def _push(self, pushes: Sequence[BranchPush]) -> GitResult:
        leases = (f"--force-with-lease={push.ref}:{push.expected or ''}" for push in pushes)
        return self.call("push", *PUSH_OPTIONS, *leases, patterns=[f"{push.commit}:{push.ref}" for push in pushes])

    def last_pushed(self, branch: str) -> str | None:
        """Return the commit that this crew pushed last to ``branch``. Raises GitFailed."""
        return self.git.find_commit(_PUSHED + branch)


def find_remote(git: Git, base: str | None = None) -> Remote:
    """Return the remote to push to, ``origin`` if no setting of git names another. ``base``: the branch to land on.

    Raises Missing without it, Refused if it has several URLs, GitFailed.
    """
    return _read_remote(git, push_rules.find_push_remote(_read_config(git), base), "--push")


def find_project(push: Remote, base: str | None = None) -> Remote:
    """Return the remote of the project, where pull requests go: ``push`` itself, unless that is a person's fork.

    Raises Refused if the settings of git name several, Missing, GitFailed.
    """
    git, config = push.git, _read_config(push.git)
    names = push_rules.find_projects(config, base, push.name)
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
    return Remote(git, read_urls(git, name, *options), name)


def _choose_command(project: Remote) -> str:
    """Return the command that says which remote is the project, as the forge's own program records it."""
    repository = find_forge_repository(project.urls)
    forge = (repository and repository.forge) or Forge.GITHUB
    return shlex.join(["git", "config", f"remote.{project.name}.{push_rules.RESOLVED_KEYS[forge]}", "base"])


def _land_command(project: Remote, push: Remote) -> str:
    # The address of a project that is not the push remote has to be accepted, too.
    return LAND_COMMAND if project.name == push.name else accept_command(LAND_COMMAND, push.address)


def read_failure(record: Path) -> RemoteFailure | None:
    """Return the failures in a row; None if the last try succeeded, or if the record cannot be read."""
    # A damaged record only hides an alarm; the next failure writes it again.
    with suppress(LizaError, OSError):
        return read_struct(record, RemoteFailure)
    return None


def record_failure(record: Path, about: str, error: LizaError, now: datetime) -> None:
    """Count a failure, for all processes. A write error is ignored: a disk that is full has an alarm of its own."""
    failure = count_failure(read_failure(record), about, error, now)
    with suppress(LizaError, OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(record, msgspec.json.encode(failure) + b"\n", sync=False)


def clear_failure(record: Path) -> None:
    """Forget the failures after a success. An error is ignored: then the next success does it."""
    with suppress(OSError):
        record.unlink(missing_ok=True)


class Remotes(Value):
    """Where a branch is pushed, and the project, where its pull request goes. They are the same without a fork."""

    push: Remote
    project: Remote

    @property
    def fork(self) -> str | None:
        """Path of the fork at the forge, OWNER/NAME; None if the branch is pushed to the project itself."""
        push, project = (find_forge_repository(remote.urls) for remote in (self.push, self.project))
        return None if push is None or push == project else push.path


def find_accepted_origin(crew: Crew) -> Remote:
    """Return the push remote, if git would push to the address that a person has accepted.

    Raises Refused, with the form of ``liza push`` that accepts another one, Missing, GitFailed.
    """
    remote = find_remote(crew.git)
    change = _find_change(crew.paths, _read_address(remote), PUSH_COMMAND)
    if change is not None:
        raise change
    return remote


def find_accepted_remotes(crew: Crew, base: str) -> Remotes:
    """Return the remotes for a pull request against ``base``, if a person has accepted both addresses.

    Raises Refused, with the form of ``liza land --pr`` that accepts others, Missing, GitFailed.
    """
    remotes, change = inspect_remotes(crew, base)
    if change is not None:
        raise change
    return remotes


def inspect_remotes(crew: Crew, base: str) -> tuple[Remotes, LizaError | None]:
    """Return the remotes for a pull request against ``base``, and why nothing may be sent there.

    Raises Missing, Refused, GitFailed.
    """
    push = find_remote(crew.git, base)
    remotes = Remotes(push, find_project(push, base))
    return remotes, _find_change(crew.paths, _read_address(push, remotes.project), LAND_COMMAND)


def accept_origin(crew: Crew, url: str, base: str | None = None) -> None:
    """Accept ``url``, which must be the present address of the push remote. With ``base``, also accept the project of
    pull requests against it.

    Raises UsageError for another address, Refused, Missing, GitFailed, OSError.
    """
    remote = find_remote(crew.git, base)
    address = _read_address(remote, None if base is None else find_project(remote, base))
    if strip_login(url) != address.urls[0]:
        present = accept_command(PUSH_COMMAND if base is None else LAND_COMMAND, address.urls[0])
        raise UsageError(f"{remote.name} is at {address.urls[0]}, not at {url!r}: nothing is accepted", present)
    accepted = read_accepted(crew.paths.pins)
    if base is None and accepted is not None:
        address = replace(address, project=accepted.project)
    _record(crew.paths, address)
    clear_failure(crew.paths.push_failure)  # a person has changed what failed: it is tried again at once
    file_growth.wake_watchers(crew.paths, "origin")


def record_first_origin(crew: Crew, base: str | None) -> tuple[str, str] | None:
    """Accept the present addresses: at init a person's configuration is trusted. ``base``: the person's branch.

    Return the name of the push remote and a sentence about it; None if there is no usable one. The project is accepted
    if it can be decided. Raises OSError.
    """
    # Without usable remotes nothing is accepted. A person does it when there are some.
    with suppress(LizaError):
        push = find_remote(crew.git)
        project = push
        with suppress(LizaError):
            project = find_project(push, base)
        _record(crew.paths, _read_address(push, project))
        requests = "" if project is push else f"; pull requests go to {project.project_name}"
        return push.name, f"{push.address}; `liza land --pr` and `liza push` send to no other address{requests}"
    return None


def _find_change(paths: Paths, present: PushAddress, command: str) -> LizaError | None:
    return push_address.find_change(read_accepted(paths.pins), present, command)


def _record(paths: Paths, address: PushAddress) -> None:
    fields = msgspec.to_builtins(address)
    confirmed_settings.accept_origin(paths, {"project": [], **fields})


def _read_address(remote: Remote, project: Remote | None = None) -> PushAddress:
    other = () if project is None or project.name == remote.name else project.urls
    return push_address.make_address(remote.urls, other)
