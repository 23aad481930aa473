"""Accelerate with the backend "yard" on CPUs.

Accelerate(1.x) takes the backend of InitProcessGroupKwargs on GPUs; with Accelerator(cpu=True) it knows but
MPI and Gloo and refuses every other name. Here it is taught to keep a name that torch knows for CPUs.
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch.distributed as dist

_MODULE = "accelerate.state"


def keep_the_named_backend() -> None:
    """In the Accelerate that is imported, or whenever it will be."""
    if _MODULE in sys.modules:
        _teach(sys.modules[_MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _teach(module: ModuleType) -> None:
    original = getattr(module.PartialState, "_prepare_backend", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def prepare_backend(
        self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
    ) -> tuple[str, Any]:
        chosen, distributed_type = original(self, cpu, sagemaker_dp, backend)
        if distributed_type == module.DistributedType.MULTI_CPU and _serves_cpus(backend):
            chosen = backend
        return chosen, distributed_type

    module.PartialState._prepare_backend = prepare_backend


def _serves_cpus(backend: str | None) -> bool:
    if backend is None:
        return False
    names = dict(pair.split(":", 1) for pair in backend.split(",") if ":" in pair)
    return names.get("cpu", backend) == "yard" and dist.is_backend_available(backend)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets others find the module, and runs _teach after it was loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _teach(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
