"""The rules of timestamp sets: rings, rows of generations, and the generation of a timestamp."""
