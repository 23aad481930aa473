"""Every proof that docs/SEMANTICS.md names is a test of this tree."""

import re

from tiny_run import ROOT

TABLES = [
    line
    for line in (ROOT / "docs/SEMANTICS.md").read_text().splitlines()
    if line.startswith("|") and "---" not in line and "| proof |" not in line
]
PROOFS = [line.rsplit("|", 2)[1] for line in TABLES]


def names_in(pattern, paths):
    return {
        ".".join(match) if isinstance(match, tuple) else match
        for path in paths
        for match in re.findall(pattern, path.read_text(), re.MULTILINE)
    }


def test_every_promise_names_a_proof():
    assert len(PROOFS) > 30
    for line, proof in zip(TABLES, PROOFS):
        assert re.search(r"\b[A-Z]\w+\.[A-Z]\w+|\btest_\w+", proof), line


def test_every_proof_exists():
    cpp = names_in(
        r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", (ROOT / "src").rglob("*_test.cc")
    )
    python = names_in(r"^def (test_\w+)\(", (ROOT / "tests").rglob("test_*.py"))
    text = " ".join(PROOFS)
    missing = set(re.findall(r"\b([A-Z]\w+\.[A-Z]\w+)\b", text)) - cpp
    missing |= set(re.findall(r"\b(test_\w+)\b(?!\.py)", text)) - python
    assert not missing
