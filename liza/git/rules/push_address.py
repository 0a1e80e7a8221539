"""Where a person lets git push, and what a failed call of a remote means. Pure.

A remote may have been changed since a person accepted its address: nothing is sent where no person wanted it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from liza.model.errors import LizaError, Refused
from liza.model.value_classes import FrozenStruct, decodable

ORIGIN = "origin"


class PushFailure(StrEnum):
    """Why a remote did not answer or did not take a push."""

    LOGIN = "it asks for a login"
    MOVED = "the branch moved meanwhile"
    REJECTED = "it rejected the push"
    NOT_STORED = "it could not store the push"
    NOT_ATOMIC = "it cannot move several refs together"
    UNREACHABLE = "it cannot be reached"


_LOGIN = re.compile(
    r"(?i)could not read (username|password)|authentication failed|permission denied|terminal prompts disabled"
    r"|invalid (username|credentials)|host key verification failed|access denied|\b40[13]\b"
)
_NOT_ATOMIC = re.compile(r"does not support --atomic push")
_NOT_STORED = re.compile(r"remote unpack failed|unpacker error|No space left on device")
_MOVED = re.compile(r"\((stale info|fetch first|non-fast-forward)\)")
_REJECTED = re.compile(r"\[remote rejected\]|pre-receive hook declined|remote: error|\[rejected\]")


def classify_failure(output: str) -> PushFailure:
    """Return the cause of a failed ``git push`` or ``git ls-remote`` from what it printed."""
    if _NOT_ATOMIC.search(output):
        return PushFailure.NOT_ATOMIC
    if _NOT_STORED.search(output):
        return PushFailure.NOT_STORED
    if _MOVED.search(output):
        return PushFailure.MOVED
    if _REJECTED.search(output):
        return PushFailure.REJECTED
    return PushFailure.LOGIN if _LOGIN.search(output) else PushFailure.UNREACHABLE


PUSH_COMMAND, LAND_COMMAND = "liza push", "liza land --pr"
"""The commands that push; with ``--origin URL`` they accept the address first."""
_LOGIN_PART = r"\A([a-z]+://)[^/@?#\\\s]+@"


class PushAddress(FrozenStruct, frozen=True, kw_only=True):
    """Where git pushes, without credentials.

    ``urls``: the effective URLs, then the configured one, which names the repository at the forge. ``project``: the
    URLs of the project, where pull requests go, if that is another repository.
    """

    urls: tuple[str, ...]
    project: tuple[str, ...] = ()


def strip_login(url: str) -> str:
    """Return a URL without user name and password.

    Only what every program reads as such is removed: for curl the host of ``https://a?@b/`` is ``a``.
    """
    return re.sub(_LOGIN_PART, r"\1", url)


def make_address(urls: Iterable[str], project: Iterable[str] = ()) -> PushAddress:
    """Return the address of these URLs."""
    return PushAddress(urls=tuple(map(strip_login, urls)), project=tuple(map(strip_login, project)))


def parse_accepted(record: object) -> PushAddress | None:
    """Return the accepted address as the pins have it; None if no address was accepted, or it is damaged."""
    try:
        return None if record is None else msgspec.convert(record, decodable(PushAddress))
    except msgspec.ValidationError:
        return None


def accept_command(command: str, url: str) -> str:
    """Return the command with which a person accepts an address, and then pushes."""
    return f"{command} --origin {shlex.quote(url)}"


def find_change(accepted: PushAddress | None, present: PushAddress, command: str) -> LizaError | None:
    """Return the error why ``command`` may send nothing to ``present``; None if a person has accepted it."""
    url = present.urls[0]
    accept = accept_command(command, url)
    if accepted is None:
        return Refused(f"no person has accepted the address of origin, which is {url}", accept)
    if accepted.urls[:1] != present.urls[:1]:
        before = ", ".join(accepted.urls[:1])
        return Refused(f"origin is at {url} now, and a person has accepted {before}", accept)
    if accepted.urls != present.urls:
        before, now = " and ".join(accepted.urls), " and ".join(present.urls)
        return Refused(f"the URLs of origin are {now} now, and a person has accepted {before}", accept)
    if command == LAND_COMMAND and accepted.project != present.project:
        now, before = (" and ".join(address.project or address.urls) for address in (present, accepted))
        return Refused(f"pull requests go to {now} now, and a person has accepted {before}", accept)
    return None
