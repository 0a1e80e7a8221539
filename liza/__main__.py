"""``python -m liza``: the same door as the installed command."""

from liza.cli.entry_points import liza

if __name__ == "__main__":
    liza()
