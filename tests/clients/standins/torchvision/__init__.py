"""Stands in for torchvision, which has no build without CUDA on these machines: small random data and models.

It has the names that the scripts of `tests/clients/scripts.py` use, and no others.
"""

from torchvision import datasets, models, transforms, utils

__version__ = "0.0.stand-in"
__all__ = ["datasets", "models", "transforms", "utils"]
