"""The text of the board: YAML to the model's values, and changed values back into the same text.

`document.py` reads a text as parts, one for each entry, and parses only the parts that changed. `changes.py` writes a
changed state into the text: it replaces lines, else uses ruamel's round trip, and reads every result back. Comments
and formatting outside the changed lines stay. `parse.py` reads with ruamel's C parser.
Read `document.py` first, then `changes.py`.
"""
