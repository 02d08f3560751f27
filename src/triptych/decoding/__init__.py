"""Decoding: picking values, sampling sequences, beam search; on the core alone."""
