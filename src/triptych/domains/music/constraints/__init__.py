"""Constraints on sampled music: scale, ranges, parallels, grid, polyphony and repetitions."""
