"""The scheduler of migrations as a pure machine; see machine.py."""
