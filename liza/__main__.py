"""``python -m liza``: the same door as the installed command."""

from liza.cli.door import liza

if __name__ == "__main__":
    liza()
