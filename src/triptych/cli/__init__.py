"""The command line: one module per command, and `main`, which chooses among them."""
