"""Captioned photographs, no two of the same bytes: make_corpus.py JPEG_DIR OUT_DIR COUNT.

The JPEGs are taken in turn, each copy with a comment of its own (marker COM) behind its first two bytes.
"""
import pathlib
import sys


def main():
    source, out, count = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    out.mkdir(parents=True)
    pictures = [path.read_bytes() for path in sorted(source.glob("*.jpg"))]
    for i in range(count):
        picture = pictures[i % len(pictures)]
        comment = f"{i:08}".encode()
        segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
        (out / f"{i:06}.jpg").write_bytes(picture[:2] + segment + picture[2:])
        (out / f"{i:06}.txt").write_text(f"photograph {i}")


main()
