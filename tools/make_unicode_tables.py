#!/usr/bin/env python3
"""Writes src/data/text/unicode_tables.cc from the Unicode data inside Python's own unicodedata.

    tools/make_unicode_tables.py > src/data/text/unicode_tables.cc

Run it only to move to another Unicode version; the version is in the file's first lines.
"""
import unicodedata

SURROGATES = range(0xD800, 0xE000)
CODEPOINTS = [c for c in range(0x110000) if c not in SURROGATES]


def runs(codepoints):
    """Consecutive code points as (first, last)."""
    result = []
    for c in codepoints:
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def of_category(initial):
    return runs(c for c in CODEPOINTS if unicodedata.category(chr(c))[0] == initial)


def lower_case():
    """(first, last, stride, delta): every stride-th code point moves by delta."""
    result = []
    for c in CODEPOINTS:
        lower = chr(c).lower()
        if lower == chr(c) or len(lower) != 1:
            continue
        delta = ord(lower) - c
        if result:
            first, last, stride, last_delta = result[-1]
            step = c - last
            if delta == last_delta and (step == stride or first == last and step <= 2):
                result[-1] = [first, c, step, delta]
                continue
        result.append([c, c, 1, delta])
    return result


def combining_classes():
    result = []
    for c in CODEPOINTS:
        combining = unicodedata.combining(chr(c))
        if not combining:
            continue
        if result and result[-1][1] == c - 1 and result[-1][2] == combining:
            result[-1][1] = c
        else:
            result.append([c, c, combining])
    return result


def decompositions():
    """(composed, first, second): second is 0 for a singleton."""
    result = []
    for c in CODEPOINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if parts and not parts[0].startswith("<"):
            result.append([c] + [int(p, 16) for p in parts] + [0] * (2 - len(parts)))
    return result


def not_composed(pairs):
    """Composed characters with two parts that NFC takes apart and leaves so."""
    return [[c] for c, first, second in pairs
            if second and unicodedata.normalize("NFC", chr(c)) != chr(c)]


def number(value):
    return f"{value:#x}" if value >= 0 else f"-{-value:#x}"


def table(kind, name, rows):
    print(f"const {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        item = ", ".join(number(v) for v in row)
        item = f" {{{item}}}," if len(row) > 1 else f" {item},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
    print(f"const size_t {name}Count = {len(rows)};\n")


def main():
    pairs = decompositions()
    print(f"// Unicode {unicodedata.unidata_version}. Written by tools/make_unicode_tables.py.")
    print("// clang-format off")
    print('#include "text/unicode_tables_internal.h"\n')
    print("namespace yard::text::tables {\n")
    table("Range", "kLetters", of_category("L"))
    table("Range", "kNumbers", of_category("N"))
    table("CaseRange", "kLowerCase", lower_case())
    table("ClassRange", "kCombiningClasses", combining_classes())
    table("Decomposition", "kDecompositions", pairs)
    table("char32_t", "kNotComposed", not_composed(pairs))
    print("}  // namespace yard::text::tables")


main()
