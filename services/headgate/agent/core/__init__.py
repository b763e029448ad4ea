"""The agent's decisions, pure: transitions.py has the table of a session, span/transitions.py that of a span."""
