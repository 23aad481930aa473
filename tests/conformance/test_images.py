"""Our decoding, resizing and cutting of pictures beside Pillow's, through `yard prep picture`."""
import io
import os
import pathlib
import random
import struct
import subprocess
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

ROOT = pathlib.Path(__file__).resolve().parents[2]
YARD = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin")) / "yard"


def yard_picture(tmp_path, encoded, *options):
    source, target = tmp_path / "in", tmp_path / "out.png"
    source.write_bytes(encoded)
    subprocess.run([YARD, "prep", "picture", source, target, *map(str, options)], check=True,
                   capture_output=True, timeout=60)
    return np.asarray(Image.open(target)).astype(int)


def noise(width, height, channels=3, seed=0):
    """A picture with edges, ramps and noise, so that no filter tap goes unnoticed."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels))
    ramp = np.linspace(0, 255, width).astype(int)[None, :, None]
    half = np.where(np.arange(height)[:, None, None] % 16 < 8, values, ramp)
    return half.astype(np.uint8)


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def over_white(image):
    rgba = np.asarray(image.convert("RGBA")).astype(float)
    alpha = rgba[..., 3:] / 255
    return rgba[..., :3] * alpha + 255 * (1 - alpha)


def raw_png(width, height, depth, colour_type, rows, interlaced=False):
    """A PNG file out of unfiltered rows, for kinds that Pillow does not write."""
    def chunk(tag, body):
        return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, int(interlaced))
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_png_kinds_give_pillows_pixels(tmp_path):
    rgb = Image.fromarray(noise(61, 43))
    rgba = Image.fromarray(noise(61, 43, 4))
    transparent_palette = rgb.quantize(32)
    kinds = {
        "RGB": (rgb, {}),
        "L": (rgb.convert("L"), {}),
        "1": (rgb.convert("1"), {}),
        "P": (rgb.quantize(200), {}),
        "P of 4 bits": (rgb.quantize(13), {"bits": 4}),
        "P with transparency": (transparent_palette, {"transparency": 3}),
        "LA": (rgba.convert("LA"), {}),
        "RGBA": (rgba, {}),
    }
    for name, (image, options) in kinds.items():
        encoded = encode(image, "PNG", **options)
        difference = np.abs(yard_picture(tmp_path, encoded) - over_white(Image.open(io.BytesIO(encoded))))
        assert difference.max() <= (1 if "A" in name else 0), name


def test_16_bit_png_is_rounded_to_8(tmp_path):
    values = np.random.default_rng(1).integers(0, 65536, (20, 30, 3))
    encoded = raw_png(30, 20, 16, 2, [row.astype(">u2").tobytes() for row in values])
    assert np.array_equal(yard_picture(tmp_path, encoded), np.round(values / 257).astype(int))
    grey = values[..., 0]
    encoded = raw_png(30, 20, 16, 0, [row.astype(">u2").tobytes() for row in grey])
    assert np.array_equal(yard_picture(tmp_path, encoded)[..., 1], np.round(grey / 257).astype(int))


def test_interlaced_png_gives_the_same_pixels(tmp_path):
    pixels = noise(37, 29)
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = [row.tobytes() for x, y, step_x, step_y in passes for row in pixels[y::step_y, x::step_x]]
    assert np.array_equal(yard_picture(tmp_path, raw_png(37, 29, 8, 2, rows, True)), pixels)


def smooth(width, height, mode):
    rng = np.random.default_rng(2)
    channels = len(Image.new(mode, (1, 1)).getbands())
    small = rng.integers(0, 256, (6, 8, channels)).astype(np.uint8)
    bands = [Image.fromarray(small[..., c]).resize((width, height), Image.BICUBIC) for c in range(channels)]
    return Image.merge(mode, bands) if channels > 1 else bands[0]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0, "quality": 97}])
def test_jpeg_kinds_give_pillows_pixels(tmp_path, mode, options):
    encoded = encode(smooth(150, 99, mode), "JPEG", **options)
    want = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)
    # Two builds of libjpeg may round the colour conversion differently.
    assert np.abs(yard_picture(tmp_path, encoded) - want).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_as_pillow_does(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = smooth(90, 60, "RGB")
    for kind in ("JPEG", "PNG"):
        encoded = encode(image, kind, exif=exif)
        stored = Image.open(io.BytesIO(encoded))
        want = np.asarray(ImageOps.exif_transpose(stored)).astype(int)
        got = yard_picture(tmp_path, encoded)
        assert got.shape == want.shape and np.abs(got - want).max() <= 2
        got = yard_picture(tmp_path, encoded, "--stored-orientation")
        assert np.abs(got - np.asarray(stored).astype(int)).max() <= 2


def test_resize_is_within_one_level_of_pillow(tmp_path):
    rng = random.Random(3)
    sizes = [(64, 64, 64, 64), (128, 128, 64, 64), (1, 1, 5, 7), (300, 2, 1, 1), (2, 300, 31, 1)]
    sizes += [tuple(rng.randint(1, 300) for _ in range(4)) for _ in range(40)]
    for width, height, new_width, new_height in sizes:
        pixels = noise(width, height, seed=width)
        want = Image.fromarray(pixels).resize((new_width, new_height), Image.BILINEAR)
        got = yard_picture(tmp_path, encode(Image.fromarray(pixels), "PNG"),
                           "--width", new_width, "--height", new_height)
        assert np.abs(got - np.asarray(want).astype(int)).max() <= 1, (width, height, new_width, new_height)


def test_crop_is_resize_then_centre_crop(tmp_path):
    for width, height, size in [(200, 133, 64), (133, 201, 64), (40, 31, 64), (64, 64, 64), (97, 96, 17)]:
        image = Image.fromarray(noise(width, height))
        scaled = (size, size * height // width) if width <= height else (size * width // height, size)
        resized = image.resize(scaled, Image.BILINEAR)
        left, top = round((scaled[0] - size) / 2), round((scaled[1] - size) / 2)
        want = np.asarray(resized.crop((left, top, left + size, top + size))).astype(int)
        got = yard_picture(tmp_path, encode(image, "PNG"), "--size", size)
        assert np.abs(got - want).max() <= 1, (width, height, size)
        flipped = yard_picture(tmp_path, encode(image, "PNG"), "--size", size, "--flip")
        assert np.array_equal(flipped, got[:, ::-1])


@pytest.mark.parametrize("content, code", [
    (b"", 2), (b"GIF89a", 2), (encode(Image.new("RGB", (9, 9)), "PNG")[:-20], 4),
    (encode(Image.new("RGB", (9, 9)), "JPEG")[:-20], 4)])
def test_bad_pictures_are_told_by_exit_code(tmp_path, content, code):
    (tmp_path / "in").write_bytes(content)
    done = subprocess.run([YARD, "prep", "picture", tmp_path / "in", tmp_path / "out.png"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert str(tmp_path / "in") in done.stderr
    assert not (tmp_path / "out.png").exists()
