"""Callbacks that an agent program runs by itself, installed for one run.

Offers: a template per vendor in `templates/*.toml`, the meaning of an event and the reply to it (`hook_events`), and
installation and removal for one run (`hook_install`).
`liza hook` calls these. Read `hook_events.py` first.
"""
