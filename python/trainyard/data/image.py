"""What becomes of a picture on its way into a batch."""
from __future__ import annotations

import dataclasses

from .._native import LoaderOptions
from ..errors import InvalidArgument
from .checks import check_choice, whole_number


@dataclasses.dataclass(frozen=True)
class Image:
    """How pictures become arrays. JPEG, PNG and WebP are read; the result is always RGB.

    size        side of the square result, in pixels.
    crop        "center": the shorter side is scaled to `size`, the middle is cut out (torchvision's
                Resize and CenterCrop). "random": the same with a place drawn for each sample and
                epoch. "resized": a part of random area and aspect is stretched over the result
                (torchvision's RandomResizedCrop); `area` and `aspect` bound it.
    flip        mirror every second picture, drawn likewise.
    dtype       "float32" or "bfloat16": (level / 255 - mean) / std, by default in [-1, 1];
                "uint8": the levels 0..255 themselves. bfloat16 needs torch.
    layout      "NCHW": (batch, 3, height, width); "NHWC": (batch, height, width, 3). A tensor of the
                latter, permuted to NCHW, is channels-last without a copy.
    mean, std   of each channel, in 0..1.
    filter      "bilinear" or "bicubic", antialiased as Pillow's.
    dct_scaling decode a JPEG at 1/2, 1/4 or 1/8 as long as that is no smaller than needed: faster,
                and off Pillow's result by what docs/pictures.md states.
    buckets     instead of `size`: (width, height) pairs. Each batch is of one of them, each picture
                goes to the one whose aspect is nearest. Sizes stand in the indexes of shards; where
                they do not, the headers of all pictures are read at the start.
    """

    size: int = 256
    crop: str = "center"
    flip: bool = False
    dtype: str = "float32"
    layout: str = "NCHW"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    filter: str = "bilinear"
    dct_scaling: bool = True
    buckets: tuple[tuple[int, int], ...] = ()
    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        whole_number("size", self.size, 1, 8192)
        check_choice("crop", self.crop, ("center", "random", "resized"))
        check_choice("dtype", self.dtype, ("uint8", "float32", "bfloat16"))
        check_choice("layout", self.layout, ("NCHW", "NHWC"))
        check_choice("filter", self.filter, ("bilinear", "bicubic"))
        for name, count in (("mean", 3), ("std", 3), ("area", 2), ("aspect", 2)):
            values = tuple(float(value) for value in getattr(self, name))
            if len(values) != count:
                raise InvalidArgument(f"{name} {values} has not {count} numbers")
            object.__setattr__(self, name, values)
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise InvalidArgument(f"area {self.area} is no part of (0, 1]")
        if not 0 < self.aspect[0] <= self.aspect[1]:
            raise InvalidArgument(f"aspect {self.aspect} is no range of positive numbers")
        object.__setattr__(self, "buckets", tuple((int(w), int(h)) for w, h in self.buckets))

    def apply(self, options: LoaderOptions) -> None:
        """Puts all of this into the native options."""
        options.image_size = self.size
        options.random_flip = self.flip
        options.random_crop = self.crop == "random"
        if self.crop == "resized":
            options.set_random_resized_crop(self.area, self.aspect)
        options.set_dtype(self.dtype)
        options.set_layout(self.layout)
        options.set_filter(self.filter)
        options.set_mean(self.mean)
        options.set_std(self.std)
        options.set_dct_scaling(self.dct_scaling)
        options.set_buckets(list(self.buckets))
