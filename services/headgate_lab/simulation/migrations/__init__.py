"""Migrations in a simulated world: the owner's machine and role loop, and a database whose answers may be lost."""
