"""`python -m everlog`: the command line."""

from __future__ import annotations

from everlog.cli.main import run

if __name__ == "__main__":
    run()
