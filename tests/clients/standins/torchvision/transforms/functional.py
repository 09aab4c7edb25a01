"""Functions of single PIL images."""

import numpy as np
import torch


def to_tensor(image):
    """Return a tensor between 0 and 1, channels first."""
    pixels = np.array(image, dtype=np.float32) / 255
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())


def pil_to_tensor(image):
    """Return a tensor of whole numbers, channels first."""
    return (to_tensor(image) * 255).round().byte()


def resize(image, size, *_, **__):
    """Return an image or a tensor of another size."""
    height, width = (size, size) if isinstance(size, int) else size
    if isinstance(image, torch.Tensor):
        batch = image if image.ndim == 4 else image[None]
        batch = torch.nn.functional.interpolate(batch, (height, width))
        return batch if image.ndim == 4 else batch[0]
    return image.resize((width, height))


def center_crop(image, size):
    """Return the middle of an image or a tensor."""
    size = size if isinstance(size, int) else size[0]
    width, height = (image.shape[-1], image.shape[-2]) if isinstance(image, torch.Tensor) else image.size
    left, top = (width - size) // 2, (height - size) // 2
    if isinstance(image, torch.Tensor):
        return image[..., max(top, 0) : top + size, max(left, 0) : left + size]
    return image.crop((left, top, left + size, top + size))
