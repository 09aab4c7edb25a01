"""Renders the recipe of the conda package, as what builds it reads it: ``make dist``."""

from __future__ import annotations

from pathlib import Path

from rattler_build import Stage0Recipe, VariantConfig

RECIPE = Path(__file__).parents[1] / "conda" / "recipe.yaml"

if __name__ == "__main__":
    variants = Stage0Recipe.from_file(str(RECIPE)).render(VariantConfig.from_yaml("python_min: ['3.11']"))
    assert len(variants) == 1, variants
    print(f"{RECIPE.name}: accepted by rattler-build")
