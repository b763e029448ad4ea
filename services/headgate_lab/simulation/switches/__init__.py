"""Switches of a change log in simulation: the real owner, writers' and readers' machines, and every kind of crash."""
