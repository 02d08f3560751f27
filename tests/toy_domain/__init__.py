"""A fourth domain, outside Triptych: a motif of numbers, repeated with a shift."""
