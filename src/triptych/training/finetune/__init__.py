"""What a run trains of a model that exists: parts, adapters, rows, word vectors."""
