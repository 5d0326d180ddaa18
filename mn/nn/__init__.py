"""Modules of the method: dictionary, heads, iFiLM, backbones and the model that joins them."""

from mn.nn.alpha import Alpha
from mn.nn.dictionary import Dictionary
from mn.nn.explain import Explanation
from mn.nn.heads import CosineHead, DotHead, Head, MLPHead
from mn.nn.ifilm import IFiLM, insert_ifilm
from mn.nn.model import MetaNeighborhoods, Vanilla

__all__ = [
    "Alpha",
    "CosineHead",
    "Dictionary",
    "DotHead",
    "Explanation",
    "Head",
    "IFiLM",
    "MLPHead",
    "MetaNeighborhoods",
    "Vanilla",
    "insert_ifilm",
]
