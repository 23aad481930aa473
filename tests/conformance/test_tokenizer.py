"""Our CLIP tokenizer and its training beside transformers' CLIPTokenizer, on the same folder."""
import io
import json
import os
import pathlib
import random
import re
import subprocess
import tarfile
import unicodedata

import pytest
from tokenizers import normalizers
from transformers import CLIPTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
YARD = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin")) / "yard"
CLDR = pathlib.Path("/usr/share/unicode/cldr/common")


def cldr_captions():
    """Names and keywords, and the emoji themselves beside them."""
    captions = []
    for folder in ("annotations", "annotationsDerived"):
        text = (CLDR / folder / "en.xml").read_text(encoding="utf-8")
        for emoji, body in re.findall(r'<annotation cp="([^"]+)"[^>]*>([^<]+)<', text):
            captions += [body, f"{emoji} {body}"]
    return captions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer that `yard prep tokenizer` trained from shards."""
    root = tmp_path_factory.mktemp("tokenizer")
    (root / "shards").mkdir()
    with tarfile.open(root / "shards/names-000000.tar", "w") as tar:
        for i, caption in enumerate(cldr_captions()[:6000]):
            content = caption.encode()
            member = tarfile.TarInfo(f"{i:06d}.txt")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    subprocess.run([YARD, "prep", "tokenizer", root / "shards", root / "tokenizer", "--vocab-size", "1500"],
                   check=True, timeout=120)
    return root / "tokenizer"


@pytest.fixture(scope="module")
def reference(folder):
    return CLIPTokenizer.from_pretrained(folder)


def our_ids(folder, captions, length=77):
    done = subprocess.run([YARD, "prep", "tokens", folder, "--length", str(length)],
                          input="\n".join(captions) + "\n", check=True, capture_output=True,
                          encoding="utf-8", timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_equal_ids(folder, reference, captions, length=77):
    # NFC in the tokenizers package knows the order of marks up to Unicode 9; texts with newer ones
    # are normalised differently before any tokenizer sees them, and prove nothing about ours.
    nfc = normalizers.NFC()
    captions = [c for c in captions if nfc.normalize_str(c) == unicodedata.normalize("NFC", c)]
    want = reference(captions, padding="max_length", max_length=length, truncation=True)["input_ids"]
    got = our_ids(folder, captions, length)
    assert len(got) == len(want)
    different = [(c, g, w) for c, g, w in zip(captions, got, want) if g != w]
    assert not different, f"{len(different)} of {len(captions)}, first: {different[0]}"
    return len(captions)


def test_trained_folder_loads_and_has_clips_shape(folder, reference):
    assert len(reference) == 1500
    assert reference.bos_token_id == 1498 and reference.eos_token_id == 1499
    assert reference.pad_token_id == 1499
    assert reference.model_max_length == 77


def test_cldr_names_and_emoji(folder, reference):
    assert assert_equal_ids(folder, reference, cldr_captions()) > 10000


def test_every_assigned_character_between_letters(folder, reference):
    captions = [f"x{chr(c)}x" for c in range(1, 0x110000)
                if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and chr(c) not in "\n\r"]
    assert assert_equal_ids(folder, reference, captions) > 100000


def test_random_mixtures(folder, reference):
    rng = random.Random(0)
    characters = [chr(c) for c in range(1, 0x30000)
                  if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and chr(c) not in "\n\r"]
    marks = [c for c in characters if unicodedata.category(c)[0] == "M"]
    pieces = ["'s", "'LL", "'", "''", "<|endoftext|>", "<|startoftext|>", "<|EndOfText|>", "<|", "a",
              "1", " ", "\t", "\u00a0", "\u3000", "red", "Å", "İ", "ẞ", "Σ", "한", "각", "🏽", "\u200d"]
    groups = [characters, [c for c in characters if ord(c) < 0x600], marks, pieces, pieces]
    captions = ["".join(rng.choice(rng.choice(groups)) for _ in range(rng.randint(1, 40)))
                for _ in range(20000)]
    assert assert_equal_ids(folder, reference, captions) > 15000


@pytest.mark.parametrize("length", [2, 3, 16, 77, 200])
def test_truncation_and_padding(folder, reference, length):
    captions = ["", " ", "red apple", "red " * 300, "p" * 1000, "e\u0301" * 50, "🍎" * 60]
    assert_equal_ids(folder, reference, captions, length)
