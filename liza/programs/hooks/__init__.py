"""Callbacks that an agent program runs by itself, installed for one run.

Offers: a template per vendor in `templates/*.toml` (`hook_templates`), installation and removal for one run
(`hook_install`), and the meaning of an event and the reply to it (`hook_events`, `turn_phase`).
`liza hook` calls these. Read `hook_templates.py` first.
"""
