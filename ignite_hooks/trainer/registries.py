"""The names that sections of a trainer may use: models, data sets, optimizers, schedulers, losses and metrics."""

from __future__ import annotations

from ignite_hooks.registry import Registry

_TRAINER = "ignite_hooks.trainer."

MODELS = Registry(
    "model",
    dict.fromkeys(("CNN", "MLP", "ViT", "Detector", "Segmenter"), _TRAINER + "models"),
    {"cnn": "CNN", "mlp": "MLP", "vit": "ViT", "detector": "Detector", "segmenter": "Segmenter"},
)
"""Every model that a configuration can name."""

DATASETS = Registry(
    "data set",
    dict.fromkeys(("digits", "digits_detection", "digits_segmentation", "cifar10", "mnist"), _TRAINER + "datasets")
    | {"image_folder": _TRAINER + "image_folder", "csv": _TRAINER + "csv_table"},
)
"""Every data set that a configuration can name."""

_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")

OPTIMIZERS = Registry(
    "optimizer", dict.fromkeys(_OPTIMIZERS, "torch.optim"), {name.lower(): name for name in _OPTIMIZERS}
)
"""Every optimizer that a configuration can name."""

SCHEDULERS = Registry(
    "scheduler",
    dict.fromkeys(
        (
            "ConstantLR",
            "CosineAnnealingLR",
            "CosineAnnealingWarmRestarts",
            "CyclicLR",
            "ExponentialLR",
            "LinearLR",
            "MultiStepLR",
            "OneCycleLR",
            "PolynomialLR",
            "ReduceLROnPlateau",
            "StepLR",
        ),
        "torch.optim.lr_scheduler",
    ),
)
"""Every scheduler of learning rates that a configuration can name."""

_LOSSES = (
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "L1Loss",
    "MSELoss",
    "MultiMarginLoss",
    "NLLLoss",
    "SmoothL1Loss",
)

CRITERIA = Registry(
    "criterion",
    dict.fromkeys(_LOSSES, "torch.nn") | {"DetectionLoss": _TRAINER + "models"},
    {"cross_entropy": "CrossEntropyLoss", "mse": "MSELoss", "detection": "DetectionLoss"},
)
"""Every loss that a configuration can name."""

METRICS = Registry(
    "metric",
    dict.fromkeys(
        (
            *("accuracy", "f1", "loss", "map", "miou", "precision", "recall", "top5"),
            *("confusion_matrix", "class_precision", "class_recall", "class_f1", "class_iou", "class_ap"),
            *("roc", "precision_recall", "calibration", "worst"),
        ),
        _TRAINER + "metrics",
    ),
)
"""Every metric that a configuration can name, besides those of Ignite by the names of their classes."""

IGNITE_METRICS = ("ignite.metrics", "ignite.metrics.regression", "ignite.metrics.clustering")
"""The modules of Ignite whose metrics are known by the names of their classes."""
