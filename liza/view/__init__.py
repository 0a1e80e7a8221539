"""What a person sees of a crew: facts in, structs out. No disk, no process, no clock, no colour, no width.

`liza status`, `liza status --watch` and `liza status --short` draw from one `Picture`, so that they cannot disagree.

Read `rules/structs.py` first, then `rules/picture.py`.
"""
