"""Figures as SVG that takes its colours and its type from the page around it.

A figure is a string to be put into an HTML page together with :func:`stylesheet`: one drawing serves light
and dark pages alike, scales with the text, and the same data always gives the same characters.
"""

from mn.analysis.figures.curves import training_panels
from mn.analysis.figures.dictionary import DictionaryUse, dictionary_panels
from mn.analysis.figures.palette import family, label, legend, stylesheet
from mn.analysis.figures.ranking import ranking_diagram
from mn.analysis.figures.regions import Moment, Regions, region_legend, region_panels, three_moments
from mn.analysis.figures.strip import strip

__all__ = [
    "DictionaryUse",
    "Moment",
    "Regions",
    "dictionary_panels",
    "family",
    "label",
    "legend",
    "ranking_diagram",
    "region_legend",
    "region_panels",
    "strip",
    "stylesheet",
    "three_moments",
    "training_panels",
]
