"""Text for translation and language: tokenizers, tables, batches by length."""
