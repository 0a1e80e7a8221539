"""``python -m liza``: the same as the installed command ``liza``, always in this process."""

import sys

from liza.cli.entry_points import liza

if __name__ == "__main__":
    sys.exit(liza())
