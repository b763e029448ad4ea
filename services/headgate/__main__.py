"""``python -m headgate`` is the ``headgate`` command, wherever its script may be."""

from headgate.cli.main import app

if __name__ == "__main__":
    app()
