"""The coordinator decides, pure: replication.py has every transition of a span, machine.py which rule answers what."""
