"""Documents whose text a translation model translates, with their layout."""
