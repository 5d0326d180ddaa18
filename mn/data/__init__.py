"""Data sets: where they come from, their HDF5 form, and how they are fed to a model."""
