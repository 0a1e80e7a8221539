"""The remote ``origin``, only at an address that a person has accepted. The address is kept with the pins."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from liza.board import wake_up
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings
from liza.crew.landing import backup_record, remote_branches
from liza.crew.landing.remote_branches import Remote
from liza.repo.config_pins import Pins
from liza.rules.errors import LizaError, UsageError
from liza.rules.landing import push_address
from liza.rules.landing.push_address import PUSH_COMMAND, PushAddress


def find_accepted_origin(crew: Crew, command: str = PUSH_COMMAND) -> Remote:
    """Return the remote ``origin``, if git would push to the address that a person has accepted.

    Raises Refused, with the form of ``command`` that accepts another one, Missing, GitFailed.
    """
    remote, change = inspect_origin(crew, command)
    if change is not None:
        raise change
    return remote


def inspect_origin(crew: Crew, command: str) -> tuple[Remote, LizaError | None]:
    """Return the remote ``origin``, and why nothing may be sent there. Raises Missing, Refused, GitFailed."""
    remote = remote_branches.find_remote(crew.git)
    accepted = push_address.parse_accepted(Pins.load(crew.paths.pins).origin)
    return remote, push_address.find_change(accepted, _read_address(remote), command)


def accept_origin(crew: Crew, url: str, command: str = PUSH_COMMAND) -> None:
    """Accept ``url``, which must be the present address of ``origin``; the caller is ``command`` of a person.

    Raises UsageError for another address, Refused, Missing, GitFailed, OSError.
    """
    remote = remote_branches.find_remote(crew.git)
    address = _read_address(remote)
    if push_address.strip_login(url) != address.urls[0]:
        present = push_address.accept_command(command, address.urls[0])
        raise UsageError(f"origin is at {address.urls[0]}, not at {url!r}: nothing is accepted", present)
    _record(crew, address)
    backup_record.clear_failure(crew)
    wake_up.wake_watchers(crew.paths, "origin")


def record_first_origin(crew: Crew) -> str | None:
    """Accept the present address of ``origin``: at init a person's configuration is trusted. Return its URL, or None if
    there is none. Raises OSError.
    """
    # Without a usable origin nothing is accepted. A person does it when there is one.
    with suppress(LizaError):
        address = _read_address(remote_branches.find_remote(crew.git))
        _record(crew, address)
        return address.urls[0]
    return None


def _record(crew: Crew, address: PushAddress) -> None:
    fields = msgspec.to_builtins(address)
    confirmed_settings.accept_origin(crew.paths, {"settings": {}, **fields})


def _read_address(remote: Remote) -> PushAddress:
    """Return the address, with the settings of the repository. Those of a person change with their network.

    Raises GitFailed.
    """
    fields = remote.git.unpinned().names("config", "--list", "--includes", "--show-scope", "-z")
    rows = zip(fields[::2], fields[1::2], strict=True)
    pairs = (row.partition("\n") for scope, row in rows if scope in ("local", "worktree"))
    return push_address.make_address(remote.urls, ((key, value) for key, _, value in pairs))
