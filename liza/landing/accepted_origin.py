"""The remote to push to and that of the project, only at addresses that a person has accepted: they are kept with the
pins. The push remote is called ``origin`` here, which it is if no setting of git names another.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from liza.config import confirmed_settings
from liza.crew.crew import Crew
from liza.landing import remote_branches
from liza.landing.remote_branches import Remote
from liza.landing.rules import push_address
from liza.landing.rules.push_address import LAND_COMMAND, PUSH_COMMAND, PushAddress
from liza.landing.rules.remote_urls import find_forge_repository
from liza.model.errors import LizaError, UsageError
from liza.model.value_classes import Value, replace
from liza.system import file_growth


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
    remote = remote_branches.find_remote(crew.git)
    change = _find_change(crew, _read_address(remote), PUSH_COMMAND)
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
    push = remote_branches.find_remote(crew.git, base)
    remotes = Remotes(push, remote_branches.find_project(push, base))
    return remotes, _find_change(crew, _read_address(push, remotes.project), LAND_COMMAND)


def accept_origin(crew: Crew, url: str, base: str | None = None) -> None:
    """Accept ``url``, which must be the present address of the push remote. With ``base``, also accept the project of
    pull requests against it.

    Raises UsageError for another address, Refused, Missing, GitFailed, OSError.
    """
    remote = remote_branches.find_remote(crew.git, base)
    address = _read_address(remote, None if base is None else remote_branches.find_project(remote, base))
    if push_address.strip_login(url) != address.urls[0]:
        present = push_address.accept_command(PUSH_COMMAND if base is None else LAND_COMMAND, address.urls[0])
        raise UsageError(f"{remote.name} is at {address.urls[0]}, not at {url!r}: nothing is accepted", present)
    accepted = _read_accepted(crew)
    if base is None and accepted is not None:
        address = replace(address, project=accepted.project)
    _record(crew, address)
    # A person has changed what failed: it is tried again at once.
    crew.paths.push_failure.unlink(missing_ok=True)
    file_growth.wake_watchers(crew.paths, "origin")


def record_first_origin(crew: Crew, base: str | None) -> tuple[str, str] | None:
    """Accept the present addresses: at init a person's configuration is trusted. ``base``: the person's branch.

    Return the name of the push remote and a sentence about it; None if there is no usable one. The project is accepted
    if it can be decided. Raises OSError.
    """
    # Without usable remotes nothing is accepted. A person does it when there are some.
    with suppress(LizaError):
        push = remote_branches.find_remote(crew.git)
        project = push
        with suppress(LizaError):
            project = remote_branches.find_project(push, base)
        _record(crew, _read_address(push, project))
        requests = "" if project is push else f"; pull requests go to {project.project_name}"
        return push.name, f"{push.address}; `liza land --pr` and `liza push` send to no other address{requests}"
    return None


def _read_accepted(crew: Crew) -> PushAddress | None:
    return push_address.parse_accepted(confirmed_settings.load_pins(crew.paths.pins).get(confirmed_settings.ORIGIN_KEY))


def _find_change(crew: Crew, present: PushAddress, command: str) -> LizaError | None:
    return push_address.find_change(_read_accepted(crew), present, command)


def _record(crew: Crew, address: PushAddress) -> None:
    fields = msgspec.to_builtins(address)
    confirmed_settings.accept_origin(crew.paths, {"project": [], **fields})


def _read_address(remote: Remote, project: Remote | None = None) -> PushAddress:
    other = () if project is None or project.name == remote.name else project.urls
    return push_address.make_address(remote.urls, other)
