"""Real photographs through our PictureReader and through Pillow."""
import io
import json
import os
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
sys.path.insert(0, str(ROOT / "tools"))
import photos  # noqa: E402

PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@pytest.fixture(scope="session")
def folder():
    """The photographs as they come, and as JPEG and WebP of several kinds."""
    try:
        paths = photos.fetch()
    except OSError as error:
        pytest.skip(f"no photographs: {error}")
    made = photos.FOLDER.parent / "photos-encoded"
    made.mkdir(exist_ok=True)
    for path in paths:
        image = Image.open(path).convert("RGB")
        for name, kind, options in [("420", "JPEG", {"quality": 90}),
                                    ("422", "JPEG", {"quality": 85, "subsampling": 1}),
                                    ("444-progressive", "JPEG", {"quality": 92, "subsampling": 0, "progressive": True}),
                                    ("lossy", "WEBP", {"quality": 85}),
                                    ("lossless", "WEBP", {"lossless": True, "method": 0})]:
            target = made / f"{path.stem}-{name}.{kind.lower()}"
            if not target.exists():
                image.save(target, kind, **options)
    return [*paths, *sorted(made.iterdir())]


def read(tmp_path, requests):
    """Answers of picture_tool, each with its array, or None where it failed."""
    lines = [json.dumps({**request, "path": str(request["path"]), "out": str(tmp_path / f"{i}.raw")})
             for i, request in enumerate(requests)]
    done = subprocess.run([BIN / "picture_tool"], input="\n".join(lines) + "\n", capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests)
    return [(answer, None if "code" in answer else array(tmp_path / f"{i}.raw", request))
            for i, (request, answer) in enumerate(zip(requests, answers))]


def array(path, request):
    """height x width x 3, whatever layout and type it has in the file."""
    raw = path.read_bytes()
    kind = request.get("type", "uint8")
    if kind == "bfloat16":
        values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(raw, kind)
    height, width = request["height"], request["width"]
    if request.get("layout") == "interleaved":
        return values.reshape(height, width, 3)
    return values.reshape(3, height, width).transpose(1, 2, 0)


def pillow(path, view, filter):
    """What the view says, done by Pillow: the part cut out, scaled as a whole, the window cut from it."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    x, y, width, height = view["part"]
    scaled = image.crop((x, y, x + width, y + height)).resize(tuple(view["scaled"]), PILLOW[filter])
    left, top, width, height = view["window"]
    cut = scaled.crop((left, top, left + width, top + height))
    return np.asarray(ImageOps.mirror(cut) if view["flip"] else cut).astype(float)


def differences(tmp_path, requests):
    """Per request: our levels minus Pillow's, of PictureReader's uint8."""
    result = []
    for request, (answer, ours) in zip(requests, read(tmp_path, requests)):
        assert ours is not None, answer
        theirs = pillow(request["path"], answer["view"], request.get("filter", "bilinear"))
        result.append(ours.astype(float) - theirs)
    return result


def requests_for(folder, filter, **more):
    draw = random.Random(7)
    views = [{"width": 256, "height": 256}, {"width": 224, "height": 224, "x": 0.1, "y": 0.9, "flip": True},
             {"width": 192, "height": 320}, {"width": 640, "height": 640}, {"width": 97, "height": 61, "view": "stretched"},
             {"width": 224, "height": 224, "view": "random_resized"}, {"width": 300, "height": 200, "view": "random"}]
    return [{"path": path, "filter": filter, "seed": draw.randrange(2**32), **view, **more}
            for path in folder for view in views]


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_photographs_are_pillows_within_two_levels(tmp_path, folder, filter):
    requests = requests_for(folder, filter)
    worst, means = 0, []
    for request, difference in zip(requests, differences(tmp_path, requests)):
        worst = max(worst, np.abs(difference).max())
        means.append(np.abs(difference).mean())
        assert np.abs(difference).max() <= 2, request
        assert np.abs(difference).mean() <= 0.3, request
    print(f"{filter}: {len(requests)} views, greatest difference {worst:.0f}, mean {np.mean(means):.3f}, "
          f"greatest mean {max(means):.3f} levels")


# Overshoot is cut off between columns and rows, so that a bicubic filter's result depends on which of
# them Pillow takes first; black and white noise has nothing but overshoot.
@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_bicubic_takes_columns_and_rows_in_pillows_order(tmp_path, orientation):
    draw = random.Random(11)
    exif = Image.Exif()
    exif[0x0112] = orientation
    requests = []
    for number in range(120):
        size = draw.randrange(20, 200), draw.randrange(20, 200)
        noise = np.random.default_rng(number).integers(0, 2, (*size, 3), np.uint8) * 255
        path = tmp_path / f"noise-{number}.png"
        Image.fromarray(noise).save(path, exif=exif)
        requests.append({"path": path, "filter": "bicubic", "view": "stretched",
                         "width": draw.randrange(5, 200), "height": draw.randrange(5, 200)})
    for request, difference in zip(requests, differences(tmp_path, requests)):
        assert np.abs(difference).max() <= 2, request


def draft(path, view):
    """Pillow's own decoding at a smaller scale."""
    image = Image.open(path)
    image.draft("RGB", tuple(view["scaled"]))
    left, top, width, height = view["window"]
    scaled = image.convert("RGB").resize(tuple(view["scaled"]), Image.Resampling.BILINEAR)
    return np.asarray(scaled.crop((left, top, left + width, top + height))).astype(float)


def test_the_error_of_dct_scaling_is_what_the_docs_state(tmp_path, folder):
    """docs/pictures.md; and it is no greater than that of Pillow's draft mode."""
    jpegs = [path for path in folder if path.suffix in (".jpg", ".jpeg")]
    requests = [{"path": path, "width": size, "height": size, "dct_scaling": True} for path in jpegs
                for size in (64, 128, 200)]
    means, tails, worst, drafts = [], [], 0, []
    for request, (answer, ours) in zip(requests, read(tmp_path, requests)):
        exact = pillow(request["path"], answer["view"], "bilinear")
        difference = np.abs(ours - exact)
        means.append(difference.mean())
        tails.append(np.quantile(difference, 0.99))
        worst = max(worst, difference.max())
        drafts.append(np.abs(draft(request["path"], answer["view"]) - exact).mean())
        assert means[-1] <= drafts[-1] + 0.2, request
    print(f"dct scaling: {len(requests)} views, mean {np.mean(means):.2f} (Pillow's draft mode {np.mean(drafts):.2f}), "
          f"greatest mean {max(means):.2f}, greatest 99 % quantile {max(tails):.0f}, greatest {worst:.0f} levels")
    assert np.mean(means) <= 1.1 and max(means) <= 4.5 and max(tails) <= 28


def test_types_and_layouts_hold_the_same_numbers(tmp_path, folder):
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    base = {"path": folder[0], "width": 77, "height": 51, "mean": mean, "std": std}
    kinds = [{**base, "type": kind, "layout": layout} for kind in ("uint8", "float32", "bfloat16")
             for layout in ("planar", "interleaved")]
    levels, levels_too, floats, floats_too, halves, halves_too = [pixels for _, pixels in read(tmp_path, kinds)]
    assert np.array_equal(levels, levels_too) and np.array_equal(floats, floats_too)
    assert np.array_equal(halves, halves_too)
    back = (floats * np.array(std, np.float32) + np.array(mean, np.float32)) * 255
    assert np.abs(back - levels).max() <= 0.501
    # To the nearest of bfloat16's 8 bits, half to even, as torch and numpy round.
    bits = floats.astype(np.float32).copy().view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).view(np.float32)
    assert np.array_equal(halves, rounded)


def test_a_seed_gives_the_same_view_and_another_another(tmp_path, folder):
    requests = [{"path": folder[0], "width": 32, "height": 32, "view": view, "seed": seed}
                for view in ("random", "random_resized") for seed in (1, 1, 2)]
    answers = read(tmp_path, requests)
    for first in (0, 3):
        assert answers[first][0] == answers[first + 1][0] != answers[first + 2][0]
        assert np.array_equal(answers[first][1], answers[first + 1][1])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_in_every_format(tmp_path, folder, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.open(folder[2]).convert("RGB")
    requests = []
    for kind, options in [("JPEG", {"quality": 95}), ("PNG", {}), ("WEBP", {"lossless": True})]:
        path = tmp_path / f"turned.{kind.lower()}"
        image.save(path, kind, exif=exif, **options)
        for view in [{}, {"flip": True, "x": 0.3, "y": 0.2}]:
            for layout in ("planar", "interleaved"):
                requests.append({"path": path, "width": 120, "height": 90, "layout": layout, **view})
    for request, difference in zip(requests, differences(tmp_path, requests)):
        assert np.abs(difference).max() <= 2, request


def test_the_first_frame_of_an_animation_is_read(tmp_path, folder):
    frames = [Image.open(path).convert("RGB").resize((200, 150)) for path in folder[:3]]
    requests = []
    for kind, options in [("WEBP", {"lossless": True}), ("PNG", {})]:
        path = tmp_path / f"moving.{kind.lower()}"
        frames[0].save(path, kind, save_all=True, append_images=frames[1:], duration=100, **options)
        requests.append({"path": path, "width": 150, "height": 150})
    for difference in differences(tmp_path, requests):
        assert np.abs(difference).max() <= 2


def test_transparent_webp_lies_over_the_background(tmp_path):
    rgba = np.zeros((40, 60, 4), np.uint8)
    rgba[:, :, 0] = np.arange(60) * 4
    rgba[:, :, 3] = np.arange(40)[:, None] * 6
    path = tmp_path / "alpha.webp"
    Image.fromarray(rgba).save(path, "WEBP", lossless=True, exact=True)
    _, ours = read(tmp_path, [{"path": path, "width": 60, "height": 40, "layout": "interleaved"}])[0]
    alpha = rgba[..., 3:] / 255
    assert np.abs(ours - (rgba[..., :3] * alpha + 255 * (1 - alpha))).max() <= 1


def test_every_cut_of_a_photograph_is_an_error(tmp_path, folder):
    """A truncated file never passes as a picture, wherever it ends."""
    draw = random.Random(5)
    requests = []
    for path in folder:
        whole = path.read_bytes()
        for i, size in enumerate([len(whole) - 1, len(whole) - 2, *(draw.randrange(20, len(whole)) for _ in range(6))]):
            cut = tmp_path / f"{path.name}-{i}"
            cut.write_bytes(whole[:size])
            requests.append({"path": cut, "width": 64, "height": 64, "dct_scaling": bool(i % 2),
                             "view": "stretched" if i % 3 else "covering"})
    for request, (answer, _) in zip(requests, read(tmp_path, requests)):
        assert answer.get("code") == "corrupt", (request, answer)
