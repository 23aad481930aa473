"""WebDataset shards in, batches out: exact, resumable, without worker processes.

ShardLoader    batches of decoded pictures and captions
samples        samples as dicts of bytes, as the webdataset library gives them
Image          what becomes of a picture
Batch          what a ShardLoader yields
"""
from .batch import Batch
from .image import Image
from .loader import ShardLoader
from .samples import samples
from .urls import expand

__all__ = ["Batch", "Image", "ShardLoader", "expand", "samples"]
