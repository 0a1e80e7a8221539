"""A picture of the crew in the terminal: what waits for a person, what goes on, what it costs, and actions on it.

Each screen is made of the results of verbs, read in this process: no file of `.liza` is read here. A `Snapshot` of
the crew and the `PictureView` of the person go in, lines come out. `follower.py` reads the snapshots; `terminal/`
shows the lines, and is the only package that imports textual. Read `rules/drawing.py` first.
"""
