"""Transforms of single PIL images."""

import enum
import random

import torch
from PIL import ImageOps

from torchvision.transforms import functional
from torchvision.transforms.functional import center_crop, resize, to_tensor

__all__ = ["functional"]


class InterpolationMode(enum.Enum):
    """What may be between pixels."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class Compose:
    """One transform after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """A tensor between 0 and 1."""

    def __call__(self, image):
        return to_tensor(image)


class Normalize:
    """Means of 0 and deviations of 1."""

    def __init__(self, mean, std):
        self.mean, self.std = (torch.tensor(each).view(-1, 1, 1) for each in (mean, std))

    def __call__(self, image):
        return (image - self.mean) / self.std


class Lambda:
    """Any function."""

    def __init__(self, function):
        self.function = function

    def __call__(self, image):
        return self.function(image)


class Pad:
    """A border."""

    def __init__(self, padding, fill=0):
        self.padding, self.fill = padding, fill

    def __call__(self, image):
        return ImageOps.expand(image, self.padding, self.fill)


class Resize:
    """Another size."""

    def __init__(self, size, *_, **__):
        self.size = size

    def __call__(self, image):
        return resize(image, self.size)


class CenterCrop:
    """The middle."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        return center_crop(image, self.size)


class RandomCrop:
    """A part, chosen by torch's generator, as there."""

    def __init__(self, size, padding=0, fill=0, **_):
        self.size, self.padding, self.fill = size, padding, fill

    def __call__(self, image):
        if self.padding:
            image = ImageOps.expand(image, self.padding, self.fill)
        left = int(torch.randint(0, image.width - self.size + 1, (1,)))
        top = int(torch.randint(0, image.height - self.size + 1, (1,)))
        return image.crop((left, top, left + self.size, top + self.size))


class RandomHorizontalFlip:
    """A mirror, one time in two, by torch's generator, as there."""

    def __call__(self, image):
        return ImageOps.mirror(image) if torch.rand(1) < 0.5 else image


class RandomRotation:
    """A rotation, by Python's generator."""

    def __init__(self, degrees):
        self.degrees = degrees

    def __call__(self, image):
        return image.rotate(random.uniform(-self.degrees, self.degrees))
