"""Digests are those of hashlib, with or without Python's own modules for them."""

from __future__ import annotations

import hashlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.rules import digests

SIZES = [0, 1, 1 << 18, (1 << 18) + 1]


@given(st.binary(max_size=200))
def test_digests_are_those_of_hashlib(data: bytes) -> None:
    assert digests.sha256_hex(data) == hashlib.sha256(data).hexdigest()
    assert digests.sha1_hex(data) == hashlib.sha1(data).hexdigest()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("missing", [(), ("_sha1", "_sha2", "_sha256")])
def test_digests_do_not_depend_on_the_size_or_on_the_modules_of_python(
    monkeypatch: pytest.MonkeyPatch, size: int, missing: tuple[str, ...]
) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    data = b"x" * size
    assert digests.sha256_hex(data) == hashlib.sha256(data).hexdigest()
    assert digests.sha1_hex(data) == hashlib.sha1(data).hexdigest()
