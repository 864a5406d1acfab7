"""`python -m sojourn`: the command `sojourn`, where its script is not on the path."""

import sys

from sojourn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
