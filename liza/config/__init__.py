"""Settings of a crew, their limits, and which of them a person has confirmed.

Read `rules/settings.py` first.
"""
