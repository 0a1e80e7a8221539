"""The remote through which the hosts of a crew share code: fetch a branch, push a task, publish a merge.

``refs/liza/fetched/BRANCH`` is the branch as it was fetched last, ``refs/liza/remote/BRANCH`` what this clone has taken
over of it or pushed, ``refs/liza/merge-term`` the last publication. A merge is published by one ``push --atomic`` with
leases on its branch and on the term, so the remote itself refuses a merger that another one has replaced (decision
044).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from liza.git import git_refs, git_remote
from liza.git.git_refs import HEADS
from liza.git.git_remote import FETCH_OPTIONS, PUSH_OPTIONS, GitRemote
from liza.git.rules import push_address
from liza.git.rules.publications import TERM_REF, Publication
from liza.git.rules.push_address import PUSH_COMMAND, PushFailure
from liza.git.runner import Git, GitResult
from liza.model.errors import GitTimeout, LizaError, Refused, RemoteUnavailable
from liza.model.paths import Paths, branch_of
from liza.system import crash_points
from liza.system.locks import lock_path

FETCHED_PREFIX, SEEN_PREFIX = "refs/liza/fetched/", "refs/liza/remote/"
"""Prefixes of the branches of the remote: as they were fetched last, and as this clone took them over or pushed them.

A process that is killed between the two takes a branch over again: it never counts as seen before.
"""


PROBE_PREFIX = "refs/liza/probe/"
_HIDDEN = "deny updating a hidden ref"


def list_probe_refs(host: str) -> tuple[str, str]:
    """Return the refs with which a host tries the remote."""
    name = host or "clone"
    return f"{PROBE_PREFIX}{name}-1", f"{PROBE_PREFIX}{name}-2"


class PublishOutcome(StrEnum):
    """What became of a publication."""

    PUBLISHED = "published"
    BRANCH_MOVED = "branch moved"
    TERM_MOVED = "term moved"


class SharedRemote(GitRemote, kw_only=True):
    """The remote of a crew on several hosts. ``lock``: file that a fetch of this clone locks."""

    lock: Path

    def seen(self, branch: str) -> str | None:
        """Return the tip of a branch of the remote that this clone took over or pushed. Raises GitFailed."""
        return self.git.find_commit(SEEN_PREFIX + branch)

    def fetched(self, branch: str) -> str | None:
        """Return the tip of a branch of the remote as it was fetched last. Raises GitFailed."""
        return self.git.find_commit(FETCHED_PREFIX + branch)

    def mark_seen(self, branch: str, commit: str) -> None:
        """Record that this clone took over ``commit`` of a branch: its next push may replace it. Raises GitFailed."""
        self.git.out("update-ref", SEEN_PREFIX + branch, commit)

    def fetch(self, *branches: str) -> dict[str, str | None]:
        """Fetch these branches and the last publication. Return their tips, None for a branch that is not there.

        Integration is one of them: to have what was published there and not where it is would look like drift. No
        branch of this clone moves. Raises RemoteUnavailable, Missing, GitFailed.
        """
        return self._fetch(branches, {TERM_REF: TERM_REF})

    def _fetch(self, branches: Sequence[str], others: Mapping[str, str]) -> dict[str, str | None]:
        own = {HEADS + branch: FETCHED_PREFIX + branch for branch in branches} | {**others}
        refs = self.list_refs(*own)
        if not self._find_changed(own, refs):
            return {branch: refs.get(HEADS + branch) for branch in branches}
        # Two fetches of one ref at once: git lets one of them fail.
        with lock_path(self.lock, git_remote.NETWORK_LIMIT):
            self._fetch_refs({ref: own[ref] for ref in self._find_changed(own, refs)}, refs)
        tips = git_refs.find_commits(self.git, *(own[HEADS + branch] for branch in branches))
        return {branch: tip if HEADS + branch in refs else None for branch, tip in zip(branches, tips, strict=True)}

    def _find_changed(self, own: Mapping[str, str], refs: Mapping[str, str]) -> list[str]:
        """Return those of the refs ``own`` of the remote that differ from what was fetched."""
        present = git_refs.find_commits(self.git, *own.values())
        return [ref for ref, commit in zip(own, present, strict=True) if refs.get(ref) != commit]

    def _fetch_refs(self, changed: Mapping[str, str], refs: Mapping[str, str]) -> None:
        wanted = [f"+{ref}:{local}" for ref, local in changed.items() if ref in refs]
        if wanted:
            result = self.call("fetch", "--atomic", *FETCH_OPTIONS, patterns=wanted)
            if result.code != 0:
                raise self.explain(result)
        gone = [local for ref, local in changed.items() if ref not in refs]
        if gone:
            self.git.out("update-ref", "--stdin", stdin="".join(f"delete {local}\n" for local in gone))

    def push_task(self, task: str, commit: str) -> None:
        """Push the commit of a task to its branch. What others pushed there is not overwritten, unless ``commit``
        contains it.

        Raises Refused, RemoteUnavailable, Missing, GitFailed.
        """
        branch = branch_of(task)
        expected = self.seen(branch)
        result = self._push_with_lease(HEADS + branch, commit, expected)
        if result.code != 0 and self.describe_failure(result)[0] is PushFailure.MOVED:
            expected = self._read_unseen(branch, commit)
            result = self._push_with_lease(HEADS + branch, commit, expected)
        if result.code != 0:
            raise self.explain(result, f"git push {self.name} {commit[:12]}:{HEADS}{branch}", PUSH_COMMAND)
        self.mark_seen(branch, commit)

    def _read_unseen(self, branch: str, commit: str) -> str | None:
        """Return the tip that others left at a branch, if ``commit`` may replace it; None: the branch is gone. Raises
        Refused."""
        tip = self._fetch([branch], {})[branch]
        # A push that was killed before it was recorded is this clone's own.
        if tip is None or git_refs.is_contained(self.git, tip, commit) or git_refs.was_tip(self.git, branch, tip):
            return tip
        step = shlex.join(["git", "fetch", self.name, HEADS + branch]) + " && git merge FETCH_HEAD"
        raise Refused(f"{branch} of {self.name} is at {tip[:10]}, which another host or a person pushed", step)

    def _push_with_lease(self, ref: str, commit: str, expected: str | None) -> GitResult:
        return self.call(
            "push", *PUSH_OPTIONS, f"--force-with-lease={ref}:{expected or ''}", patterns=[f"{commit}:{ref}"]
        )

    def push_refs(self, refs: Sequence[str]) -> None:
        """Push refs of this clone under their names; a ref of the remote is never overwritten. Raises Refused,
        RemoteUnavailable, Missing, GitFailed."""
        leases = [f"--force-with-lease={ref}:" for ref in refs]
        result = self.call("push", *PUSH_OPTIONS, *leases, patterns=[f"{ref}:{ref}" for ref in refs])
        if result.code != 0:
            raise self.explain(result, "liza doctor")

    def create_branch(self, branch: str, commit: str) -> bool:
        """Create a branch of the remote; return False if it exists at another commit. Raises RemoteUnavailable,
        Refused, Missing, GitFailed."""
        result = self._push_with_lease(HEADS + branch, commit, None)
        if result.code != 0:
            if self.describe_failure(result)[0] is PushFailure.MOVED:
                return False
            raise self.explain(result, "liza doctor")
        self.mark_seen(branch, commit)
        return True

    def delete_branch(self, branch: str) -> None:
        """Delete a branch of the remote that is where this clone saw it last. What happens to it is not reported.

        Raises RemoteUnavailable, GitFailed.
        """
        seen = self.seen(branch)
        if seen is not None:
            ref = HEADS + branch
            self.call("push", *PUSH_OPTIONS, f"--force-with-lease={ref}:{seen}", patterns=[f":{ref}"])

    def take_term(self, publication: Publication, expected: str | None) -> str | None:
        """Begin a term at the remote, which still has ``expected``. Return its commit; None if another merger was
        faster. Raises Refused, RemoteUnavailable, Missing, GitFailed.
        """
        commit = self._move_term(publication, expected, ())
        if commit is not None:
            self.git.out("update-ref", TERM_REF, commit)
        return commit

    def publish(self, publication: Publication, expected: str, term: str) -> tuple[PublishOutcome, str]:
        """Publish a commit to its branch, which still has ``expected``, under the term commit ``term``. Return the
        outcome, and the new term commit.

        All or nothing: the remote refuses the whole push if either ref has moved. Raises Refused if it rejects the
        push, RemoteUnavailable if it is unknown what became of it, Missing, GitFailed.
        """
        ref = HEADS + publication.branch
        moved = self._move_term(publication, term, [(ref, publication.commit, expected)])
        if moved is not None:
            own = (FETCHED_PREFIX + publication.branch, SEEN_PREFIX + publication.branch)
            lines = [f"update {TERM_REF} {moved}\n", *(f"update {name} {publication.commit}\n" for name in own)]
            self.git.out("update-ref", "--stdin", stdin="".join(lines))
            return PublishOutcome.PUBLISHED, moved
        refs = self.list_refs(ref, TERM_REF)
        outcome = PublishOutcome.TERM_MOVED if refs.get(TERM_REF) != term else PublishOutcome.BRANCH_MOVED
        return outcome, term

    def _move_term(
        self, publication: Publication, expected: str | None, others: Iterable[tuple[str, str, str]]
    ) -> str | None:
        """Push a new term commit, and with it ``others``: refs, their new commits and the expected ones. Return it;
        None if a ref was not as expected."""
        commit = self._write_term(publication, expected)
        moves = [*others, (TERM_REF, commit, expected or "")]
        leases = [f"--force-with-lease={ref}:{old}" for ref, _, old in moves]
        crash_points.point("publish", "push")
        result = self.call(
            "push", "--atomic", *PUSH_OPTIONS, *leases, patterns=[f"{new}:{ref}" for ref, new, _ in moves]
        )
        crash_points.point("publish", "pushed")
        if result.code != 0:
            error = self.explain(result, "liza doctor")
            refs = self.list_refs(*(ref for ref, _, _ in moves))
            # A push whose answer was lost has moved the term.
            if refs.get(TERM_REF) != commit:
                if all(refs.get(ref, "") == old for ref, _, old in moves):
                    raise error
                return None
        return commit

    def _write_term(self, publication: Publication, parent: str | None) -> str:
        """Create the commit of a publication, on no ref. Raises GitFailed."""
        tree = self.git.out("mktree", stdin="")
        words = ("-p", parent) if parent else ()
        return self.git.with_identity().out("commit-tree", tree, *words, "-F", "-", stdin=publication.format())

    def probe(self, host: str) -> LizaError | None:
        """Push two refs outside of the branches together, as a merge needs it, then delete them.

        Return why that is impossible, with the setting that helps; None if it worked. Raises RemoteUnavailable,
        GitFailed.
        """
        refs = list_probe_refs(host)
        present = self.list_refs(*refs)
        tree = self.git.out("mktree", stdin="")
        commit = self.git.with_identity().out("commit-tree", tree, "-F", "-", stdin="liza doctor tries this remote\n")
        leases = [f"--force-with-lease={ref}:{present.get(ref, '')}" for ref in refs]
        pushed = self.call("push", "--atomic", *PUSH_OPTIONS, *leases, patterns=[f"+{commit}:{ref}" for ref in refs])
        if pushed.code == 0:
            # A remote may deny deletions: what is left is moved by the next probe.
            self.call("push", "--atomic", *PUSH_OPTIONS, patterns=[f":{ref}" for ref in refs])
            return None
        error = self.explain(pushed, f"git ls-remote {self.name}")
        if _HIDDEN in pushed.stdout.decode("utf-8", "replace") + pushed.stderr:
            return Refused(error.message, self.setting_command("--unset-all", "receive.hideRefs"))
        return error

    def setting_command(self, key: str, value: str) -> str:
        """Return the command that sets a setting of the remote's repository, for who can reach its directory."""
        url = self.urls[0].removeprefix("file://")
        return shlex.join(["git", "-C", url if url.startswith("/") else "REMOTE.git", "config", key, value])

    def call(self, *args: str, patterns: Sequence[str]) -> GitResult:
        """As for any remote. Raises RemoteUnavailable if it takes too long, GitFailed."""
        try:
            return super().call(*args, patterns=patterns)
        except GitTimeout as error:
            message = f"{self.name} ({self.address}) did not answer within {git_remote.NETWORK_LIMIT:g} s"
            raise RemoteUnavailable(message, error.hint) from error

    def explain(self, result: GitResult, after_rejection: str = "", again: str = PUSH_COMMAND) -> LizaError:
        """As for any remote; one that cannot be reached or has no space may be there again soon."""
        failure, message = self.describe_failure(result)
        if failure in (PushFailure.UNREACHABLE, PushFailure.NOT_STORED):
            return RemoteUnavailable(message, f"git ls-remote {self.name}")
        if failure is PushFailure.NOT_ATOMIC:
            return Refused(message, self.setting_command("receive.advertiseAtomic", "true"))
        return super().explain(result, after_rejection, again)


def open_remote(git: Git, name: str, paths: Paths) -> SharedRemote:
    """Return the remote of a crew, if a person has accepted its address. Raises Refused, Missing, GitFailed."""
    urls = git_remote.read_urls(git, name, "--push")
    change = push_address.find_change(
        git_remote.read_accepted(paths.pins), push_address.make_address(urls), PUSH_COMMAND
    )
    if change is not None:
        raise change
    return SharedRemote(git, urls, name, lock=paths.locks / "fetch.lock")
