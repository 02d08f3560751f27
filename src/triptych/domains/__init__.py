"""The three arts; none knows the others."""
