#!/usr/bin/env python3
"""Fails when an include crosses a border that CMakeLists.txt does not open.

The allowed edges are the yard_module(...), yard_program(...), yard_python(...) and
yard_torch_python(...) lines: the build and this check read the same text. Checked besides: libtorch's
headers stay in the parts that say TORCH, and its umbrella headers out of all of them; x_internal.h stays
inside its module; testing/ in tests.
"""
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Each of these costs a compile of some 20 s and 1 GiB; the narrow headers do not.
UMBRELLAS = {"torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h"}
TORCH_ROOTS = {"torch", "ATen", "c10", "caffe2"}
WORDS = {"TORCH", "DEPS", "SYSTEM"}
PYTHON_FOLDERS = {"yard_python": "python/bindings", "yard_torch_python": "python/torch_bindings"}


class Part(NamedTuple):
    """A module (src/<floor>/<name>), a program (apps/<name>) or C++ of the Python package."""

    name: str
    folder: str
    is_module: bool
    is_torch: bool
    deps: list


def parse_parts(cmake_text):
    """The parts in the order of their lines."""
    text = re.sub(r"#.*", "", cmake_text)
    floor = ""
    parts = []
    for command, arguments in re.findall(
        r"\b(add_subdirectory_floor|yard_module|yard_program|yard_python|yard_torch_python)\s*\(([^)]*)\)", text
    ):
        if command in PYTHON_FOLDERS:
            folder = PYTHON_FOLDERS[command]
            is_torch = command == "yard_torch_python"
            parts.append(Part(folder, folder, False, is_torch, section(arguments.split(), "DEPS")))
            continue
        name, *rest = arguments.split()
        if command == "add_subdirectory_floor":
            floor = name
            continue
        is_module = command == "yard_module"
        folder = f"src/{floor}/{name}" if is_module else f"apps/{name}"
        deps = section(rest, "DEPS")
        parts.append(Part(name, folder, is_module, "TORCH" in rest, deps))
    return parts


def section(words, keyword):
    """The words after `keyword`, up to the next keyword."""
    if keyword not in words:
        return []
    taken = []
    for word in words[words.index(keyword) + 1 :]:
        if word in WORDS:
            break
        taken.append(word)
    return taken


def check_graph(parts):
    """A dependency is declared on an earlier line, hence no cycles; torch is never hidden in one."""
    modules = {}
    for part in parts:
        for dep in part.deps:
            if dep not in modules:
                yield f"CMakeLists.txt: {part.name} depends on {dep}, not declared before it"
            elif modules[dep].is_torch and not part.is_torch:
                yield f"CMakeLists.txt: {part.name} depends on {dep}, which needs TORCH"
        if part.is_module:
            modules[part.name] = part


def check_folders(root, parts):
    """Every folder with C++ in it belongs to a declared part."""
    declared = {part.folder for part in parts}
    for folder in sorted([*root.glob("src/*/*"), *root.glob("apps/*"), *root.glob("python/*")]):
        relative = folder.relative_to(root).as_posix()
        if relative not in declared and folder.is_dir() and any(sources(folder)):
            yield f"{relative}: no line in CMakeLists.txt"


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in {".h", ".cc"})


def check_part(root, part, modules):
    for path in sources(root / part.folder):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
            if match is None:
                continue
            problem = check_include(part, modules, path, match[1] == '"', match[2])
            if problem:
                yield f"{path.relative_to(root).as_posix()}:{number}: {problem}"


def check_include(part, modules, path, quoted, header):
    """What is wrong with this include; None when nothing is."""
    if header in UMBRELLAS:
        return f"<{header}> is banned everywhere: include the narrow headers"
    first = header.split("/")[0]
    if first in TORCH_ROOTS and "/" in header:
        return None if part.is_torch else f"libtorch header {header}, but {part.name} is not TORCH"
    if not quoted:
        return f"write \"{header}\" for a header of ours" if first in modules and "/" in header else None
    if "/" not in header:
        beside = not part.is_module and (path.parent / header).exists()
        return None if beside else f'write "module/{header}"'
    if first not in modules:
        return f'"{header}": {first} is no module'
    return check_ours(part, path, first, header)


def check_ours(part, path, module, header):
    own = part.is_module and module == part.name
    if not own and module not in part.deps:
        return f"{part.name} may not include {module}/: not in its DEPS"
    if not own and header.endswith("_internal.h"):
        return f"{header} belongs to {module} alone"
    for_tests = path.name.endswith(("_test.cc", "_bench.cc")) or path.parent.name == "testing"
    if "/testing/" in header and not for_tests:
        return f"{header} is for tests alone"
    return None


def check_tree(root):
    """All problems of the repository at `root`, one line each."""
    parts = parse_parts((root / "CMakeLists.txt").read_text(encoding="utf-8"))
    modules = {part.name for part in parts if part.is_module}
    problems = [*check_graph(parts), *check_folders(root, parts)]
    for part in parts:
        problems += check_part(root, part, modules)
    return problems


def main():
    problems = check_tree(ROOT)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
