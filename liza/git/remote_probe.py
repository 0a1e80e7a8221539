"""Try whether a remote can do what merges of several hosts need: move two refs outside of the branches together.

Two refs below ``refs/liza/probe/`` are created by one push with leases, and deleted. Nothing else is pushed.
"""

from __future__ import annotations

from liza.git.git_remote import PUSH_OPTIONS
from liza.git.runner import GitResult
from liza.git.shared_remote import SharedRemote
from liza.model.errors import LizaError, Refused

PROBE_PREFIX = "refs/liza/probe/"
_HIDDEN = "deny updating a hidden ref"


def list_probe_refs(host: str) -> tuple[str, str]:
    """Return the refs that a host tries."""
    name = host or "clone"
    return f"{PROBE_PREFIX}{name}-1", f"{PROBE_PREFIX}{name}-2"


def probe(remote: SharedRemote, host: str) -> LizaError | None:
    """Push two refs together, then delete them. Return why that is impossible, with the setting that helps; None if it
    worked.

    Raises RemoteUnavailable, GitFailed.
    """
    refs = list_probe_refs(host)
    present = remote.list_refs(*refs)
    tree = remote.git.out("mktree", stdin="")
    commit = remote.git.with_identity().out("commit-tree", tree, "-F", "-", stdin="liza doctor tries this remote\n")
    leases = [f"--force-with-lease={ref}:{present.get(ref, '')}" for ref in refs]
    pushed = remote.call("push", "--atomic", *PUSH_OPTIONS, *leases, patterns=[f"+{commit}:{ref}" for ref in refs])
    if pushed.code != 0:
        return _explain(remote, pushed)
    # A remote may deny deletions: what is left is moved by the next probe.
    remote.call("push", "--atomic", *PUSH_OPTIONS, patterns=[f":{ref}" for ref in refs])
    return None


def _explain(remote: SharedRemote, result: GitResult) -> LizaError:
    error = remote.explain(result, f"git ls-remote {remote.name}")
    if _HIDDEN in result.stdout.decode("utf-8", "replace") + result.stderr:
        return Refused(error.message, remote.setting_command("--unset-all", "receive.hideRefs"))
    return error
