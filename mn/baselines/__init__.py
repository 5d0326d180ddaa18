"""What Meta-Neighborhoods is compared with, beyond the vanilla network."""
