"""Which shards a user means: paths, globs, brace ranges, folders, s3:// URLs and prefixes."""
from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Mapping
from typing import Union

from .._native import list_objects
from ..errors import InvalidArgument, NotFound

Urls = Union[str, os.PathLike, Iterable[Union[str, os.PathLike]], Mapping[str, float]]

_RANGE = re.compile(r"^(-?\d+)\.\.(-?\d+)(?:\.\.(\d+))?$")
_WILD = re.compile(r"[*?\[]")
_URLS_MAX = 10_000_000


def braces(pattern: str) -> list[str]:
    """"a-{00..02}.tar" -> a-00.tar, a-01.tar, a-02.tar; {x,y}, several and nested ones likewise."""
    begin = pattern.find("{")
    if begin < 0:
        return [pattern]
    parts, end = _parts_of(pattern, begin)
    values = _range_of(parts[0]) if len(parts) == 1 else [v for part in parts for v in braces(part)]
    rest = braces(pattern[end:])
    if len(values) * len(rest) > _URLS_MAX:
        raise InvalidArgument(f"'{pattern}' means more than {_URLS_MAX} shards")
    return [pattern[:begin] + value + after for value in values for after in rest]


def _parts_of(pattern: str, begin: int) -> tuple[list[str], int]:
    """What the commas of the brace at `begin` separate, and where it ends."""
    parts, depth, start = [], 0, begin + 1
    for at in range(begin, len(pattern)):
        char = pattern[at]
        depth += (char == "{") - (char == "}")
        if depth == 0 or (depth == 1 and char == ","):
            parts.append(pattern[start:at])
            start = at + 1
        if depth == 0:
            return parts, at + 1
    raise InvalidArgument(f"'{pattern}': a brace is not closed")


def _range_of(inner: str) -> list[str]:
    limits = _RANGE.match(inner)
    if limits is None:
        raise InvalidArgument(f"{{{inner}}} is no range and no list")
    first, last, step = int(limits[1]), int(limits[2]), int(limits[3] or 1)
    if step == 0 or abs(last - first) // step >= _URLS_MAX:
        raise InvalidArgument(f"the range {{{inner}}} is too long")
    ends = limits.group(1, 2)
    is_padded = any(len(end.lstrip("-")) > 1 and end.lstrip("-")[0] == "0" for end in ends)
    width = max(map(len, ends)) if is_padded else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" for number in numbers]


def _in_bucket(url: str) -> list[str]:
    """An s3:// URL: a glob, a prefix, or one object."""
    wild = _WILD.search(url)
    if wild is None and url.endswith(".tar"):
        return [url]
    found = [u for u in list_objects(url[: wild.start()] if wild else url) if u.endswith(".tar")]
    if wild is not None:
        found = [u for u in found if fnmatch.fnmatchcase(u, url)]
    if not found:
        raise NotFound(f"{url}: no shard (*.tar) is there")
    return found


def _local(path: str) -> list[str]:
    if os.path.isdir(path):
        found = sorted(glob.glob(os.path.join(glob.escape(path), "*.tar")))
        if not found:
            raise NotFound(f"{path}: the folder has no shard (*.tar)")
    elif _WILD.search(path) and not os.path.exists(path):
        found = sorted(p for p in glob.glob(path, recursive=True) if not p.endswith(".idx"))
        if not found:
            raise NotFound(f"{path}: no file is of that form")
    else:
        found = [path]
    return [os.path.abspath(p) for p in found]


def _one(url: str) -> list[str]:
    if url.startswith("s3://"):
        return _in_bucket(url)
    if url.startswith("file://"):
        return _local(url[len("file://") :])
    if re.match(r"^(pipe:|[a-z][a-z0-9+.-]*://)", url):
        raise InvalidArgument(f"'{url}': shards are read from paths and s3:// URLs")
    return _local(url)


def expand(urls: Urls) -> list[str]:
    """All shards that `urls` means, as absolute paths and s3:// URLs.

    urls: one or several of: a path; a glob ("data/*.tar", "s3://bucket/dir/*.tar"); a brace range
    as WebDataset's ("shards-{000000..000099}.tar"); a folder; an S3 prefix ("s3://bucket/dir/").
    NotFound: a folder, glob or prefix without shards. InvalidArgument: another scheme.
    """
    if isinstance(urls, (str, os.PathLike)):
        urls = [urls]
    out: list[str] = []
    for url in urls:
        text = os.fspath(url)
        # A file may have braces in its name.
        for whole in [text] if os.path.exists(text) else braces(text):
            out += _one(whole)
    if not out:
        raise InvalidArgument("no shards were given")
    return out


def sources(urls: Urls) -> list[tuple[float, list[str]]]:
    """(weight, shards) of each source; {url: weight} names several."""
    if isinstance(urls, Mapping):
        if not urls:
            raise InvalidArgument("no shards were given")
        return [(float(weight), expand(url)) for url, weight in urls.items()]
    return [(1.0, expand(urls))]
