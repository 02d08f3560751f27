"""Tasks, each with its examples, its loss and its scores."""
