"""``python -m liza``: the same as the installed command ``liza``."""

from liza.cli.entry_points import liza

if __name__ == "__main__":
    liza()
