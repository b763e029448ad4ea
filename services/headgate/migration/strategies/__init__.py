"""How a table is changed: one contract (contract.py), a file per strategy, a folder per kind of database."""
