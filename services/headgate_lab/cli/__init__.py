"""Commands of the lab that have no folder of their own."""
