"""Lightning callbacks: exponential moving average, checkpointing, progress, signals."""
