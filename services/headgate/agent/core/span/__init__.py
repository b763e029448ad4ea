"""A span in an agent, as a pure machine: transitions.py has the table, start with machine.py."""
