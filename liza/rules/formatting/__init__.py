"""Values as text: counts, durations, times, TOML, similar words, wrong values, and texts without secrets.

Offers: `counts` ("1 task", "4 MB"), `times` ("4 min", and the form of a time in files), `toml_text`, `suggestions`
("did you mean"), `type_errors` (which value is wrong, and what is allowed), `redaction` (secrets are replaced).
Read `redaction.py` first.
"""
