"""Statements of schema changes: read by the database's grammar, and admitted clause by clause."""
