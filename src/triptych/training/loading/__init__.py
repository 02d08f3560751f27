"""From data to batches: order, resumption, lengths, packed files."""
