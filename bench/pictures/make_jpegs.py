"""JPEGs out of real photographs: make_jpegs.py OUT_DIR, into OUT_DIR/small and OUT_DIR/large.

small: 240 cuts with sides of 400 to 640 px, none enlarged by more than it must be. large: 24 of 1 to
2 megapixels, each several photographs side by side at their own sharpness, for none is larger than
two megapixels. Quality 90, 4:2:0, as Pillow writes them. The same on every machine.
"""
import pathlib
import random
import sys

from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import photos  # noqa: E402


def cut(image, draw):
    width, height = draw.randint(400, 640), draw.randint(400, 640)
    least = max(width / image.width, height / image.height)
    scale = draw.uniform(least, 1) if least < 1 else least
    part_width, part_height = min(width / scale, image.width), min(height / scale, image.height)
    x, y = draw.uniform(0, image.width - part_width), draw.uniform(0, image.height - part_height)
    return image.resize((width, height), Image.Resampling.LANCZOS, box=(x, y, x + part_width, y + part_height))


def side_by_side(images, draw):
    canvas = Image.new("RGB", (draw.randint(1100, 1600), draw.randint(950, 1300)))
    x = 0
    while x < canvas.width:
        y = 0
        while y < canvas.height:
            image = images[draw.randrange(len(images))]
            canvas.paste(image, (x, y))
            y += image.height
        x += 500
    return canvas


def main():
    out = pathlib.Path(sys.argv[1])
    images = [Image.open(path).convert("RGB") for path in photos.fetch()]
    draw = random.Random(1)
    for name, count, make in [("small", 240, lambda i: cut(images[i % len(images)], draw)),
                              ("large", 24, lambda i: side_by_side(images, draw))]:
        (out / name).mkdir(parents=True)
        for i in range(count):
            make(i).save(out / name / f"{i:03}.jpg", quality=90)


if __name__ == "__main__":
    main()
