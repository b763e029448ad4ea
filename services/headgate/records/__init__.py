"""Headgate's terms as types: names, keys, and the facts on the control topics. Imports nothing else of Headgate."""
