"""Sources of music: where pieces come from, one file per kind."""
