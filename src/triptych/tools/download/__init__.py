"""Public data sets: a catalogue of addresses and checksums, and their download."""
