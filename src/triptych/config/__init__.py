"""Settings: dataclasses, their plain form, YAML files, the command-line parser and its errors."""
