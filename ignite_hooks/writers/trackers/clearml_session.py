"""An archive of ClearML, which a run without a server has left: made ready before the SDK sends it, and completed.

The SDK registers the models of such a session where its files were on the machine of the run. Nobody else finds them
there, and whoever has made the archive could name any file of the machine that sends it. So each is the file in the
archive, and is uploaded to the server of files.
"""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

TASK = "task.json"
MODELS = "offline_output_models"
METADATA = "metadata"
"""Where we keep what a model shows beside its file, which the SDK leaves out."""
logger = logging.getLogger("ignite_hooks")


def unpack(archive: Path, folder: Path, files: str) -> dict[str, dict[str, dict[str, str]]]:
    """Unpack an archive so that the SDK sends files of this folder, and no others.

    Args:
        archive: The archive.
        folder: An empty folder.
        files: The address of the server of files.

    Returns:
        What each model shows beside its file, by its name.
    """
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    task = json.loads((folder / TASK).read_text(encoding="utf-8"))
    data = PurePosixPath(str(task.get("offline_folder", ""))) / "data"
    artifacts = task.get("execution", {}).get("artifacts") or []
    artifacts[:] = [one for one in artifacts if _is_inside(str(one.get("uri")).replace(f"{data}/", "", 1), folder)]
    models = task.get(MODELS) or []
    models[:] = [one for one in models if _is_there(one, folder, files)]
    (folder / TASK).write_text(json.dumps(task), encoding="utf-8")
    return {one["init"]["name"]: one.pop(METADATA, {}) for one in models}


def _is_inside(name: str, folder: Path) -> bool:
    """Return whether what the SDK would look up in the data of a session is in it, or on a server."""
    inside = (folder / "data" / name).resolve().is_relative_to(folder.resolve())
    if not inside:
        logger.warning("%s is not in the archive, so it is not sent", name)
    return inside


def _is_there(model: dict[str, Any], folder: Path, files: str) -> bool:
    """Return whether the file of a model is in its archive, and let the SDK upload that."""
    weights = model["weights"]
    if weights.get("register_uri"):
        return True
    path = folder / "models" / Path(str(weights.get("weights_filename"))).name
    if not path.is_file():
        logger.warning("the file of the model %s is not in the archive, so it is not sent", model["init"].get("name"))
        return False
    weights |= {"weights_filename": str(path), "async_enable": False}
    model["output_uri"] = model.get("output_uri") or files
    return True


def complete(sent: str, metadata: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
    """Let the models of a task that was sent show what they would have shown beside their files.

    Args:
        sent: The id of the task, which is not sent again for want of this.
        metadata: What each model shows, by its name.
    """
    from clearml import InputModel, Task

    try:
        task = Task.get_task(sent)
        for one in (task.data.models.output or []) if task.data.models is not None else []:
            if found := metadata.get(one.name):
                InputModel(model_id=one.model).set_all_metadata({key: dict(value) for key, value in found.items()})
    except Exception as error:  # the SDK has its own for each of its backends
        logger.warning("the models of task %s lack their metadata: %s: %s", sent, type(error).__name__, error)
