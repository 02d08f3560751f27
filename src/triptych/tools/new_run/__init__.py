"""First settings for a user's data: a commented YAML file (`triptych new-run`)."""
