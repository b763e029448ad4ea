"""``python -m headgate_lab.pages``: write every page that is made from the code."""

import sys

from headgate_lab.pages.made import DOCS, PAGES

for name, make in PAGES.items():
    path = DOCS / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(make(), encoding="utf-8")
    sys.stdout.write(f"{path}\n")
