"""Processes in a pid namespace of their own."""

from __future__ import annotations

import subprocess

import pytest


def unshared() -> list[str]:
    """unshare(1) into a pid namespace of its own; skips where the kernel does not allow it."""
    words = ["unshare", "-Urpf", "--mount-proc"]
    done = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        pytest.skip(f"this kernel allows no pid namespace: {done.stderr.strip()}")
    return words
