"""trainyard: data for training, read at the speed of the decoder.

    import trainyard

    loader = trainyard.data.ShardLoader("shards/*.tar", batch_size=32, image=trainyard.data.Image(size=256))
    for batch in loader:
        batch["images"], batch["captions"]

trainyard.data has the loader; trainyard.errors the exceptions that everything here raises.
"""
from . import data
from ._native import set_log_level
from .errors import (
    Cancelled,
    Corrupt,
    DeadlineExceeded,
    Error,
    Exhausted,
    Internal,
    InvalidArgument,
    NotFound,
    Unavailable,
)

__version__ = "0.1.0"
__all__ = [
    "Cancelled",
    "Corrupt",
    "DeadlineExceeded",
    "Error",
    "Exhausted",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "Unavailable",
    "data",
    "set_log_level",
]
