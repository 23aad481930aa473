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
) -> Any: ...
def flight_of(backend: Any) -> list[dict[str, Any]]: ...
def close_backends() -> None: ...
