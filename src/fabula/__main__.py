"""`python -m fabula` is the `fabula` command."""

import sys

from fabula.cli import main

if __name__ == "__main__":
    sys.exit(main())
