"""A few random images, the same in every process."""

import numpy as np
import torch
from PIL import Image


class _Images(torch.utils.data.Dataset):
    shape: tuple[int, ...] = (28, 28)

    def __init__(self, root, train=True, download=False, transform=None, target_transform=None, **_):
        random = np.random.RandomState(1 if train else 2)
        self.train = train
        self.transform = transform
        self.target_transform = target_transform
        self.targets = [int(target) for target in random.randint(0, 10, 160 if train else 64)]
        self.data = random.randint(0, 60, (len(self.targets), *self.shape), dtype=np.uint8)
        for pixels, target in zip(self.data, self.targets, strict=True):
            pixels[2 * target : 2 * target + 3] += 180  # something to learn
        self.classes = [str(number) for number in range(10)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, target = Image.fromarray(self.data[index]), self.targets[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)


class MNIST(_Images):
    """Grey images of 28 pixels; ``data`` and ``targets`` are tensors there."""

    def __getitem__(self, index):
        return super().__getitem__(int(index))


class FashionMNIST(MNIST):
    """The same."""


class CIFAR10(_Images):
    """Coloured images of 32 pixels."""

    shape = (32, 32, 3)


class CIFAR100(CIFAR10):
    """The same."""


class Caltech101(_Images):
    """Coloured images of 64 pixels."""

    shape = (64, 64, 3)


class FakeData(torch.utils.data.Dataset):
    """What torchvision has under this name."""

    def __init__(self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None, **_):
        self.size, self.image_size, self.num_classes, self.transform = size, image_size, num_classes, transform

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 255, self.image_size, generator=generator, dtype=torch.uint8)
        image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        return (image if self.transform is None else self.transform(image)), index % self.num_classes
