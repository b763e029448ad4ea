"""Background threads: started in one place, so that none of them ends without a trace."""
