"""Benchmarks of Triptych and its peers; see scripts/bench."""
