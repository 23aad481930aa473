"""The exceptions of this package: one class for each thing that a caller can do about a failure.

Each has `code`, the name that trainyard's commands and logs use for it, and is also the exception
of Python that is nearest to it, so that `except FileNotFoundError` works as well. The message names
the object: shard, offset, sample. Ctrl-C is KeyboardInterrupt, as everywhere.
"""


class Error(Exception):
    """What all of them are."""

    code = "internal"


class NotFound(Error, FileNotFoundError):
    """There is no such shard, folder or bucket; asking again gives the same answer."""

    code = "not_found"


class InvalidArgument(Error, ValueError):
    """An option, a URL, a state or a permission has to be put right."""

    code = "invalid_argument"


class Corrupt(Error, ValueError):
    """Bytes are there but wrong: a damaged shard, a picture that does not decode, a changed object."""

    code = "corrupt"


class Unavailable(Error, ConnectionError):
    """The store cannot be reached or refuses for the moment; it was asked again before this."""

    code = "unavailable"


class DeadlineExceeded(Error, TimeoutError):
    """The store was too slow."""

    code = "deadline_exceeded"


class Cancelled(Error):
    """The loader was closed meanwhile."""

    code = "cancelled"


class Exhausted(Error):
    """A limit was hit: memory, disk, or pixels of one picture."""

    code = "exhausted"


class Internal(Error, RuntimeError):
    """A mistake in trainyard or in a library."""

    code = "internal"


_CLASSES = (
    NotFound,
    InvalidArgument,
    Corrupt,
    Unavailable,
    DeadlineExceeded,
    Cancelled,
    Exhausted,
    Internal,
)
_BY_CODE = {cls.code: cls for cls in _CLASSES}


def of_code(code: str, message: str) -> Error:
    """The exception of that code; called by the C++ side."""
    return _BY_CODE.get(code, Internal)(message)
