"""Training: loop, checkpoints, run store, progress."""
