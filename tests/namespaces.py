"""Processes in namespaces of their own."""

from __future__ import annotations

import subprocess

import pytest


def unshared(*flags: str) -> list[str]:
    """unshare(1) into namespaces of its own, usually of pids; skips where the kernel does not allow it."""
    words = ["unshare", *(flags or ("-Urpf", "--mount-proc"))]
    done = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        pytest.skip(f"this kernel allows no such namespace: {done.stderr.strip()}")
    return words
