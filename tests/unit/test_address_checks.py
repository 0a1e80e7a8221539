"""What the doctor says about the addresses of a running server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from liza.api.rules.address_checks import AddressFacts, describe_long_address, find_address_faults
from liza.model.value_classes import replace

SOCKET = Path("/p/.liza/run/api.sock")
WELL = AddressFacts(
    pid=7, socket=SOCKET, directory_mode=stat.S_IFDIR | 0o700, socket_mode=stat.S_IFSOCK | 0o600, port=4000
)
FAULTS = {
    "nothing": ({}, []),
    "stricter than needed": ({"socket_mode": stat.S_IFSOCK | 0o400}, []),
    "socket gone": ({"socket_mode": None, "silence": "No such file"}, [("is gone", "kill 7")]),
    "a file": ({"socket_mode": stat.S_IFREG | 0o600, "silence": "refused"}, [("not a socket", "kill 7")]),
    "silent": ({"silence": "no answer within 3 s"}, [("no answer within 3 s", "kill -9 7")]),
    "silent, of an unknown process": ({"pid": None, "silence": "refused"}, [("does not answer", "liza down")]),
    "socket for all": ({"socket_mode": stat.S_IFSOCK | 0o666}, [("0666", f"chmod 600 {SOCKET}")]),
    "directory for the group": ({"directory_mode": stat.S_IFDIR | 0o750}, [("0750", f"chmod 700 {SOCKET.parent}")]),
    "no port": ({"port": None}, [("port", "kill 7")]),
}


@pytest.mark.parametrize(("change", "wanted"), FAULTS.values(), ids=FAULTS)
def test_each_fault_of_an_address_has_one_command(change: dict, wanted: list[tuple[str, str]]) -> None:
    faults = list(find_address_faults(replace(WELL, **change)))
    assert [fault.hint for fault in faults] == [hint for _, hint in wanted]
    assert all(words in fault.text for fault, (words, _) in zip(faults, wanted, strict=True))


@pytest.mark.parametrize(("size", "told"), [(107, False), (108, True)])
def test_a_path_too_long_for_an_address_is_reported(size: int, told: bool) -> None:
    path = Path("/" + "é" * 20 + "x" * (size - 50) + "/api.sock")
    assert len(str(path).encode()) == size
    assert bool(describe_long_address(path)) is told


def test_a_fault_names_what_others_could_do() -> None:
    def texts(**change: object) -> list[str]:
        return [fault.text for fault in find_address_faults(replace(WELL, **change))]

    assert texts(socket_mode=None) == ["/p/.liza/run/api.sock is gone, and its server, process 7, runs"]
    assert texts(socket_mode=stat.S_IFREG) == ["/p/.liza/run/api.sock is not a socket any more"]
    assert texts(silence="refused") == ["the server, process 7, does not answer: refused"]
    assert texts(socket_mode=stat.S_IFSOCK | 0o606, port=None) == [
        "/p/.liza/run/api.sock has the mode 0606, so other users may reach it; it is 0600",
        "the record of its port is gone or damaged",
    ]
    assert texts(directory_mode=None) == []
    assert texts(directory_mode=stat.S_IFDIR | 0o701) == [
        "/p/.liza/run has the mode 0701, so other users may reach it; it is 0700"
    ]
    assert describe_long_address(Path(f"/{'x' * 120}/api.sock")) == (
        f"the path of its socket has 130 bytes and an address at most 107: connect to api.sock from /{'x' * 120}, "
        "or to the port"
    )
