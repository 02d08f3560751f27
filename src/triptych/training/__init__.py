"""Training: the only place that knows Lightning and wandb."""
