"""Whether processes run in a box, and the words for a machine that cannot make one."""

from __future__ import annotations

import pytest

from liza.box.support import SYSTEM_PROGRAM, MachineFacts, Support, decide_confinement, explain_failure
from liza.model.configuration import Confinement
from liza.model.errors import Missing
from liza.model.setting_limits import choose_permissions, read_permissions

UBUNTU = "bwrap: setting up uid map: Permission denied"


@pytest.mark.parametrize(
    ("setting", "works", "expected"),
    [
        (Confinement.AUTO, True, "/bin/bwrap"),
        (Confinement.AUTO, False, None),
        (Confinement.REQUIRED, True, "/bin/bwrap"),
        (Confinement.OFF, True, None),
        (Confinement.OFF, False, None),
    ],
)
def test_the_setting_and_the_machine_decide(setting: Confinement, works: bool, expected: str | None) -> None:
    assert decide_confinement(setting, Support("/bin/bwrap", "" if works else "no")) == expected


@pytest.mark.parametrize(("remedy", "hint"), [("do this", "do this"), ("", "liza config set confinement off")])
def test_required_confinement_refuses_with_the_cause_and_a_step(remedy: str, hint: str) -> None:
    with pytest.raises(Missing, match="confinement is required, and it rains") as raised:
        decide_confinement(Confinement.REQUIRED, Support("/bin/bwrap", "it rains", remedy))
    assert raised.value.hint == hint


@pytest.mark.parametrize("output", [UBUNTU, "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"])
def test_the_ubuntu_restriction_is_named_with_its_limit_for_wheels(output: str) -> None:
    system = explain_failure(output, MachineFacts(SYSTEM_PROGRAM, has_apparmor_restriction=True))
    assert "AppArmor" in system.cause
    assert SYSTEM_PROGRAM not in system.cause
    assert "bwrap-userns-restrict" in system.remedy
    wheel = explain_failure(output, MachineFacts("/venv/bwrap", has_apparmor_restriction=True))
    assert "does not cover /venv/bwrap" in wheel.cause


@pytest.mark.parametrize(
    ("output", "facts", "cause", "remedy"),
    [
        ("bwrap: No permissions to create new namespace, likely because …", MachineFacts("b"), "seccomp", "docker run"),
        (
            "bwrap: No permissions to create new namespace, likely because …",
            MachineFacts("b", allows_user_namespaces=False),
            "root only",
            "unprivileged_userns_clone=1",
        ),
        ("bwrap: Can't read /proc/sys/kernel/overflowuid: No such file", MachineFacts("b"), "/proc is not", "mount -t"),
        (
            "bwrap: Can't mount proc on /newroot/proc: not permitted",
            MachineFacts("b"),
            "masks",
            "systempaths",
        ),
        ("bwrap: Creating new namespace failed: No space left on device", MachineFacts("b"), "limit", "sysctl"),
        ("bwrap: … /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", MachineFacts("b"), "limit", "sysctl"),
        ("bwrap: setting up uid map: Operation not permitted", MachineFacts("b"), "SETFCAP", "--cap-add SETFCAP"),
        ("/usr/bin/env: unrecognized option '--ignore-signal=INT'", MachineFacts("b"), "GNU coreutils", ""),
        ("bwrap: something else", MachineFacts("b"), "bwrap: something else", ""),
        ("", MachineFacts("b"), "no output", ""),
    ],
)
def test_each_cause_has_its_words(output: str, facts: MachineFacts, cause: str, remedy: str) -> None:
    found = explain_failure(output, facts)
    assert cause in found.cause
    assert not found.works
    assert remedy in found.remedy if remedy else found.remedy == ""


@pytest.mark.parametrize(
    "output",
    [
        "bwrap: Creating new namespace failed: No space left on device",
        "bwrap: Creating new namespace failed: Resource temporarily unavailable",
        "bwrap: eventfd(): Too many open files",
        "bwrap: Cannot allocate memory",
    ],
)
def test_a_box_failing_under_load_is_never_skipped(output: str) -> None:
    exhausted = explain_failure(output, MachineFacts("b"))
    for setting in (Confinement.AUTO, Confinement.REQUIRED):
        with pytest.raises(Missing, match="no box can be made now"):
            decide_confinement(setting, exhausted)
    assert decide_confinement(Confinement.OFF, exhausted) is None


def test_a_machine_without_namespaces_runs_without_a_box() -> None:
    output = "bwrap: Creating new namespace failed: No space left on device"
    support = explain_failure(output, MachineFacts("b", has_user_namespaces=False))
    assert decide_confinement(Confinement.AUTO, support) is None


def test_boxed_programs_skip_their_prompts_unless_a_person_wants_them() -> None:
    assert choose_permissions(None, is_boxed=True) == "bypass"
    assert choose_permissions(None, is_boxed=False) == "prompts"
    assert choose_permissions("prompts", is_boxed=True) == "prompts"
    assert choose_permissions("bypass", is_boxed=False) == "bypass"


def test_the_word_of_an_earlier_version_is_read() -> None:
    assert read_permissions("confined") == "prompts"
    assert read_permissions("bypass") == "bypass"
