"""The main job in front of the user: real parts, real kills, and a check of every row."""
