"""How an agent program is started, configured and recognised: one row of `presets.toml` per program.

Offers: the row's fields (`preset`), the table of all programs, its files and the choice for a role (`preset_table`),
and the argv of a session and its environment (`command_line`).
To add a program, add a row to `presets.toml`; no Python is needed. Read `preset.py` first.
"""
