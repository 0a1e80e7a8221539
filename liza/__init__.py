"""Liza coordinates AI coding agents that work on one git repository at the same time."""

__version__ = "0.1.0"
