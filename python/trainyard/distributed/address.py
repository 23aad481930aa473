"""Where other hosts reach this process."""
from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import Any

import torch.distributed as dist

_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_LOOPBACK = "127.0.0.1"
# RFC 5737: nobody's. A datagram socket "connected" to it sends nothing, but has the address of the
# interface by which this host reaches others.
_ELSEWHERE = "192.0.2.1"


def own_address(store: Any) -> str:
    """As TRAINYARD_ADDRESS says; else of the interface that TRAINYARD_INTERFACE names; else the one by which
    this host reaches the group's store, whose host all ranks know."""
    if address := os.environ.get("TRAINYARD_ADDRESS"):
        return address
    if interface := os.environ.get("TRAINYARD_INTERFACE"):
        return _address_of(interface)
    host = _host_of(store)
    if host is None:
        return _source_address(_ELSEWHERE) or _LOOPBACK
    address = _source_address(host) or _LOOPBACK
    # The store is on this host, but others may look for it: many hosts have their own name as a
    # loopback address.
    if address.startswith("127.") and not _means_loopback(host):
        return _source_address(_ELSEWHERE) or address
    return address


def _host_of(store: Any) -> str | None:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, dist.TCPStore) else None


def _means_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _source_address(destination: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((destination, 9))
            return probe.getsockname()[0]
        except OSError:
            return None


def _address_of(interface: str) -> str:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise ValueError(f"TRAINYARD_INTERFACE={interface}: {error.strerror}") from error
    return socket.inet_ntoa(answer[20:24])
