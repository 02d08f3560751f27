"""What `scripts/bench` measures: one module a section, and what they share."""
