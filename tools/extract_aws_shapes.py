#!/usr/bin/env python3
"""Writes src/platform/api/shapes/NAME.json: what the requests of a service's operations have to look like.

    tools/extract_aws_shapes.py NAME OPERATION,OPERATION,... SPEC.json [SPEC.json ...] [--answers] [--validation-code CODE]

A SPEC describes a service's operations and shapes in the short form that the result keeps:
"$Shape" refers to a shape, "@Enum" to a long list of values; t: kind, m: members, req: the required
ones, of: of a list, k and v: of a map, min and max: of a length, size or value, pattern, enum.
--answers: the shapes of the answers too, for services that also speak XML.
"""
import argparse
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src/platform/api/shapes"
# New instance types come every month, and a yard has its own; only their form is checked.
INSTANCE_TYPE = {"t": "string", "min": 1, "max": 64, "pattern": r"[A-Za-z0-9][A-Za-z0-9._\-]*"}
ANY_TEXT = {".*", r"[\S\s]*", r"[\s\S]*", r"[\s\S]+", ".+",
            r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*"}


def simplified(shape):
    if isinstance(shape, str):
        return dict(INSTANCE_TYPE) if shape.startswith("@") else shape
    result = dict(shape)
    if isinstance(result.get("enum"), str):
        if not result["enum"].endswith("InstanceType"):
            raise SystemExit(f"{result['enum']}: what of a list that long?")
        return dict(INSTANCE_TYPE)
    pattern = result.get("pattern")
    if pattern in ANY_TEXT:
        del result["pattern"]
    elif pattern:
        # ECMAScript, which reads them here, knows no lookbehind and wants a '-' in a class escaped.
        result["pattern"] = pattern.replace("(?<!-)", "").replace("[a-z0-9-\\.]", "[a-z0-9\\-.]")
    for name in ("of", "k", "v"):
        if name in result:
            result[name] = simplified(result[name])
    if "m" in result:
        result["m"] = {name: simplified(member) for name, member in result["m"].items()}
    return result


def references(shape):
    return re.findall(r'"\$(\w+)"', json.dumps(shape))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("operations")
    parser.add_argument("specs", nargs="+")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--validation-code", default="ValidationException", help="the error of a wrong request")
    arguments = parser.parse_args()
    known, shapes, facts = {}, {}, {}
    for path in arguments.specs:
        spec = json.loads(pathlib.Path(path).read_text())
        facts = facts or spec
        known |= spec["operations"]
        shapes |= spec["shapes"]
    operations, kept = {}, {}
    for name in arguments.operations.split(","):
        wanted = [side for side in ("in", "out") if side in known[name] and (side == "in" or arguments.answers)]
        operations[name] = {side: known[name][side] for side in wanted}
        waiting = [known[name][side][1:] for side in wanted]
        while waiting:
            shape = waiting.pop()
            if shape not in kept:
                kept[shape] = simplified(shapes[shape])
                waiting += references(kept[shape])
    head = {"service": facts["signingName"], "target_prefix": facts["targetPrefix"] or "",
            "json_version": facts["jsonVersion"] or "", "query_version": facts["apiVersion"] if arguments.answers else "",
            "validation_code": arguments.validation_code}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines.append('  "operations": {')
    lines.append(",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in operations.items()))
    lines.append('  },\n  "shapes": {')
    lines.append(",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(kept.items())))
    lines.append("  }")
    (FOLDER / f"{arguments.name}.json").write_text("{\n" + "\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
