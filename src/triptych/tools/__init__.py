"""Tools around the library: what they need they ask models, domains and runs for."""
