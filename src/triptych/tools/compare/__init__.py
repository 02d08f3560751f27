"""Variants of one config trained with several seeds at equal cost: runs, table and curves."""
