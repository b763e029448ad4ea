"""How a table is changed: one contract (contract.py), a file or folder per strategy, a folder per kind of database."""
