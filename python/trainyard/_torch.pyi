from datetime import timedelta
from typing import Any

torch_version: str

def create_backend(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    address: str,
    generation: int,
    group_name: str,
    global_ranks: list[int],
    host_identity: str,
    flight_path: str,
    bf16_between_hosts: bool,
    tls_key_file: str,
    streams_between_hosts: int,
) -> Any: ...
def shrink(backend: Any, without: list[int], timeout: timedelta) -> tuple[Any, list[int]]: ...
def use_store(backend: Any, store: Any) -> None: ...
def flight_of(backend: Any) -> list[dict[str, Any]]: ...
def close_backends() -> None: ...
