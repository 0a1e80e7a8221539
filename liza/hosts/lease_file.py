"""`.liza/run/host-lease`: what this host knows of its lease. The shims of sessions read ``sent_at`` in it."""

from __future__ import annotations

import msgspec

from liza.board.rules.host_leases import GRACE, LEASE, SESSION_LIMIT, HostLease, must_end_sessions
from liza.crew.crew import Crew
from liza.model.errors import HostFenced
from liza.model.paths import Paths
from liza.model.value_classes import Value, decodable
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


class LeaseEnds(Value):
    """Seconds until this host ends its sessions, and until other hosts may take over its work, unless a renewal
    succeeds before. None: it has no lease. The takeover may be later: the server counts from when it heard this host.
    """

    sessions_end: float | None = None
    takeover_in: float | None = None


def find_lease_ends(paths: Paths) -> LeaseEnds:
    """Return when this host loses what it has, if the server does not answer."""
    lease = read_lease(paths)
    if lease is None:
        return LeaseEnds()
    age = boottime() - lease.sent_at
    limits = (SESSION_LIMIT, LEASE + GRACE)
    return LeaseEnds(*(round(max(0.0, limit.total_seconds() - age), 1) for limit in limits))


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
