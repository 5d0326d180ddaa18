"""``python -m pipeline``, and with several processes ``torchrun --nproc-per-node N -m pipeline train …``."""

from pipeline.cli import main

main()
