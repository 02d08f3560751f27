"""One step of training and what it needs: losses, optimisers, schedules, evaluation, speed."""
