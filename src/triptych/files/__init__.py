"""Files: atomic writes, reading in parallel, drawing and progress. Knows nothing of models."""
