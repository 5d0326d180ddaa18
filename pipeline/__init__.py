"""The six stages that reproduce the paper under DVC."""
