"""``python -m liza``: the same as the installed command ``liza``."""

from liza.cli.console_script import liza

if __name__ == "__main__":
    liza()
