"""``python -m headgate_lab.pages``: write every page that is made from the code."""

import sys

from headgate_lab.pages.made import DOCS, PAGES, page

for name in PAGES:
    path = DOCS / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(name), encoding="utf-8")
    sys.stdout.write(f"{path}\n")
