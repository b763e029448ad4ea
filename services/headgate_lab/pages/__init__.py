"""Pages of docs/ that are made from the code, because the code has the facts.

``make docs`` writes them; tests/unit/docs/test_pages.py fails when one is not current.
"""
