"""`.liza/run/host-lease`: what this host knows of its lease. The shims of sessions read ``sent_at`` in it."""

from __future__ import annotations

import msgspec

from liza.board.rules.host_leases import SESSION_LIMIT, HostLease, must_end_sessions
from liza.crew.crew import Crew
from liza.model.errors import HostFenced
from liza.model.paths import Paths
from liza.model.value_classes import decodable
from liza.system import files, untrusted_files
from liza.system.clock import boottime

START_COMMAND = "liza up"


def read_lease(paths: Paths) -> HostLease | None:
    """Return what is known of the lease of this host; None if nothing is."""
    data = untrusted_files.read_if_exists(paths.host_lease)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=decodable(HostLease))
    except msgspec.DecodeError:
        return None  # After a crash of the machine the file may be empty: the host begins anew.


def write_lease(paths: Paths, lease: HostLease) -> None:
    """Replace the file. Raises WriteFailed."""
    files.replace_unsynced(paths.host_lease, msgspec.json.encode(lease))


def find_sessions_end(paths: Paths) -> float | None:
    """Return the seconds until this host ends its sessions if no renewal succeeds; None if it has no lease."""
    lease = read_lease(paths)
    if lease is None:
        return None
    return round(max(0.0, SESSION_LIMIT.total_seconds() - (boottime() - lease.sent_at)), 1)


def act_for_host(crew: Crew) -> None:
    """Let the board refuse the changes of this process once this host has no lease; nothing for a crew on one host.

    Raises HostFenced if it has none now.
    """
    if crew.paths.board_address.exists():
        lease = require_lease(crew.paths)
        crew.board.acts_for(lease.host, lease.incarnation)


def require_lease(paths: Paths) -> HostLease:
    """Return the lease of this host. Raises HostFenced if it is so old that sessions end."""
    lease = read_lease(paths)
    if lease is None or must_end_sessions(lease, boottime()):
        age = "" if lease is None else f" for {boottime() - lease.sent_at:.0f} s"
        raise HostFenced(f"the lease of this host has not been renewed{age}: no session may run here", START_COMMAND)
    return lease
