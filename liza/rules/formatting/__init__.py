"""Values as text: counts, durations, times, TOML, similar words, and texts without secrets.

Offers: `counts` ("1 task"), `durations` ("4 min"), `times` (the form of a time in files), `toml_text`, `suggestions`
("did you mean"), `redaction` (secrets are replaced). Each module stands alone. Read `redaction.py` first.
"""
