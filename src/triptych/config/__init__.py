"""Settings: dataclasses, YAML files, the command-line parser and its error messages."""
