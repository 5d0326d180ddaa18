"""Readers: the files of a data set, in the form their authors chose, as one :class:`Content`.

A reader finds out what is there and checks that it hangs together; images are decoded later, when they are
written. Which reader a set needs is the ``format`` of its catalogue entry.
"""

from __future__ import annotations

from mn.data.archive import Collection
from mn.data.catalog import Entry
from mn.data.readers import arrays, imagenet, table, trees
from mn.data.readers.content import Content

_READERS = {
    "idx": arrays.read_idx,
    "mat": arrays.read_mat,
    "cifar": arrays.read_cifar,
    "domains": trees.read_domains,
    "parts": trees.read_parts,
    "folders": trees.read_folders,
    "lists": trees.read_lists,
    "tiny_imagenet": trees.read_tiny_imagenet,
    "imagenet": imagenet.read_imagenet,
    "table": table.read_table,
}


def read(entry: Entry, collection: Collection) -> Content:
    """What the files of ``entry`` hold; an :class:`MNError` if they are not what its format says."""
    assert entry.format is not None
    content = _READERS[entry.format](entry, collection)
    content.check(entry)
    return content
