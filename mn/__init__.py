"""Meta-Neighborhoods: predictions adapted to each input by a learned dictionary of neighbours."""
