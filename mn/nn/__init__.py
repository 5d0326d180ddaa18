"""Modules of the method: dictionary, heads, iFiLM, backbones and the model that joins them."""
