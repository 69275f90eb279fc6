"""`python -m everlog`: the command line."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from everlog.cli.main import run

        run()
    except KeyboardInterrupt:  # while the program was still being loaded
        sys.exit(130)
