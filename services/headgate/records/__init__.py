"""The words of Headgate as types: names, keys, and the facts on the control topics. Imports nothing of ours."""
