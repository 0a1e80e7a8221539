"""What `liza doctor` finds about the remote of a crew on several hosts, before the first merge."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from liza.model.errors import Finding
from liza.recovery.server_findings import inspect_remote
from tests.conftest import git
from tests.edges.several_clones import Host, Hosts


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    return Hosts(made, tmp_path)


def findings(host: Host) -> list[Finding]:
    crew = host.crew
    return list(inspect_remote(crew, crew.board.read().config))


def fault(host: Host) -> Finding:
    """The only finding that is a fault."""
    (found,) = [finding for finding in findings(host) if not finding.ok]
    return found


def test_a_usable_remote_keeps_nothing_of_the_probe(hosts: Hosts) -> None:
    before = git(hosts.remote, "for-each-ref")
    (finding,) = findings(hosts.a)
    assert finding.ok
    assert "refs/liza/probe/" in finding.text
    assert git(hosts.remote, "for-each-ref") == before
    assert findings(hosts.a) == [finding]


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("receive.advertiseAtomic", "false", "cannot move several refs together"),
        ("receive.hideRefs", "refs/liza", "deny updating a hidden ref"),
    ],
)
def test_a_setting_that_prevents_merges_is_named(hosts: Hosts, key: str, value: str, cause: str) -> None:
    git(hosts.remote, "config", key, value)
    finding = fault(hosts.a)
    assert cause in finding.text
    git(hosts.remote, *shlex.split(finding.hint)[3:])
    assert all(finding.ok for finding in findings(hosts.a))


def test_a_hook_that_refuses_other_refs_is_quoted(hosts: Hosts) -> None:
    hook = hosts.remote / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) ;; *) echo "only branches here"; exit 1 ;; esac\n')
    hook.chmod(0o755)
    finding = fault(hosts.a)
    assert "only branches here" in finding.text
    assert finding.hint == "git ls-remote origin"


def test_a_remote_that_is_gone_is_named(hosts: Hosts) -> None:
    hosts.remote.rename(hosts.remote.with_name("away.git"))
    finding = fault(hosts.a)
    assert "origin" in finding.text
    assert finding.hint == "git ls-remote origin"


def test_another_repository_is_no_remote_of_the_crew(hosts: Hosts, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "other")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "another project")
    git(tmp_path / "other", "push", "-q", str(hosts.remote), "+HEAD:refs/heads/integration")
    assert "it is another repository" in fault(hosts.a).text


def test_a_remote_without_integration_gets_the_command(hosts: Hosts) -> None:
    assert all(finding.ok for finding in findings(hosts.a))
    git(hosts.remote, "update-ref", "-d", "refs/heads/integration")
    finding = fault(hosts.a)
    assert "has no branch integration" in finding.text
    git(hosts.a.root, "branch", "-q", "-D", "integration")
    git(hosts.a.root, *shlex.split(finding.hint)[1:])
    assert all(finding.ok for finding in findings(hosts.a))


def test_a_checked_out_integration_is_named(hosts: Hosts, tmp_path: Path) -> None:
    git(hosts.a.root, "switch", "-q", "integration")
    hosts.push(tmp_path, "integration", "news.txt")
    finding = fault(hosts.a)
    assert "no merger of this host can work" in finding.text
    git(hosts.a.root, *shlex.split(finding.hint)[3:])
    assert all(finding.ok for finding in findings(hosts.a))
