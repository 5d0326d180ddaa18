"""MAXL (Liu, Davison and Johns 2019): labels for an auxiliary task, learned so that the primary one gains.

A step of training: :func:`generator_gradients` moves the generator, then the network is moved on
``focal_loss(primary, y) + focal_loss(auxiliary, generator(x, y))``.
"""

from mn.baselines.maxl.gradients import generator_gradients
from mn.baselines.maxl.losses import entropy, focal_loss, masked_softmax
from mn.baselines.maxl.networks import LabelGenerator, MAXLNetwork

__all__ = [
    "LabelGenerator",
    "MAXLNetwork",
    "entropy",
    "focal_loss",
    "generator_gradients",
    "masked_softmax",
]
