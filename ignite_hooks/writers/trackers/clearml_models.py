"""The output models of a task of ClearML, and their way back."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ignite_hooks.writers.trackers.clearml_session import METADATA
from ignite_hooks.writers.trackers.clearml_task import TEXT, under_agent
from ignite_hooks.writers.trackers.tracker import Offline, Refused

logger = logging.getLogger("ignite_hooks")
LAST = "last"
"""The name of the model that a task goes on from on another machine."""
NO_FILES = ("/uploading_file", "/failed_uploading")
"""What the SDK lists as the address of a model that has no file yet."""


class Models:
    """The output models of one task, by the names that they keep for the whole run.

    Args:
        task: The task.
        offline: Whether it is recorded in a folder.
    """

    def __init__(self, task: Any, *, offline: bool) -> None:
        self._task, self._offline = task, offline
        self._open: dict[str, Any] = {}
        self._told = False

    def put(self, path: Path, content: Mapping[str, Any]) -> None:
        """Upload a checkpoint, and only then register it.

        Raises:
            Refused: It was not uploaded.
            Offline: The task takes none, because somebody has aborted it; it is opened again to send what waits.
        """
        name, details = Path(content["name"]).stem, content.get("details") or {}
        if self._offline:
            self._put_offline(path, name, details)
            return
        if not under_agent() and str(self._task.get_status()) == "stopped":
            if not self._told:
                logger.warning("the ClearML task was aborted, so its models wait for 'ignite-hooks send'")
            self._told = True
            raise Offline("the task was aborted")
        # Under a name of its own: whoever is killed here, or reads here, finds the file that is registered, and whole.
        mark = f"-{details['checksum'].replace(':', '-')}" if "checksum" in details else ""
        uri = self._uploaded(path, f"{name.replace(' ', '_')}{mark}{path.suffix}")
        model = self._open.get(name)
        if model is None:
            model = self._open[name] = self._model(name, details)
            # Otherwise the name in the task would be that of the file.
            model._task_connect_name = name
        before = model.url if model._base_model is not None else None
        model.update_weights(register_uri=uri, iteration=details.get("iteration"), update_comment=False)
        if details:
            model.set_all_metadata(metadata_of(details))
        if before and before != uri:
            self._drop(before)

    def begin_from(self, uri: str, why: str) -> None:
        """Register a file as what the run began from; a model of this address that the server knows is taken.

        Args:
            uri: The address of the file.
            why: The name in the task.
        """
        from clearml import InputModel

        model = InputModel.import_model(uri, name=Path(uri).stem, framework="PyTorch")
        # `connect` would let an agent's task keep the model of the task that it was cloned from.
        self._task.set_input_model(model.id, name=why, update_task_design=False, update_task_labels=False)

    def _model(self, name: str, details: Mapping[str, Any]) -> Any:
        from clearml import OutputModel

        there = [] if self._offline else (self._task.data.models.output or [])
        base = next((item.model for item in there if item.name == name), None)
        model = OutputModel(
            task=self._task,
            name=name,
            framework="PyTorch",
            tags=details.get("tags"),
            label_enumeration=details.get("labels") or None,
            config_text=None if self._offline else self._task.get_configuration_object(TEXT),
        )
        if base is not None:
            # With `base_model_id`, ClearML would name the model in the task by its file as well.
            model._base_model, model._floating_data = self._task._get_output_model(model_id=base), None
        return model

    def _put_offline(self, path: Path, name: str, details: Mapping[str, Any]) -> None:
        model, before = self._model(name, details), self._task._offline_output_models
        earlier = [one for one in before if one["init"]["name"] == name]
        if not hasattr(model._get_base_model(), "locked"):
            # ClearML 1.16 to 2.1 read this attribute, which an offline model does not have.
            model._get_base_model().locked = False
        # auto_delete_file would delete our checkpoint.
        model.update_weights(
            str(path), target_filename=f"{name}{path.suffix}", auto_delete_file=False, async_enable=False
        )
        # The SDK keeps no such thing of an offline model: `ignite-hooks send` completes it.
        before[-1][METADATA] = metadata_of(details) if details else {}
        for one in earlier:
            # What has a newer file under its name would be uploaded first, in vain.
            before.remove(one)
            if one["weights"]["weights_filename"] != before[-1]["weights"]["weights_filename"]:
                Path(one["weights"]["weights_filename"]).unlink(missing_ok=True)

    def _drop(self, uri: str) -> None:
        """Remove a file that was uploaded by this task before, and that no model names any more."""
        from clearml.storage.helper import StorageHelper

        ours = f"{self._task.output_uri}/{self._task._get_output_destination_suffix('models')}/"
        if not uri.startswith(ours):
            return
        try:
            StorageHelper.get(uri).delete(uri)
        except Exception as error:  # every storage has its own, and some delete nothing
            logger.debug("%s was not removed: %s", uri, error)

    def _uploaded(self, path: Path, name: str) -> str:
        """Upload a file and return its address; ``OutputModel`` would register it also where that has failed."""
        from clearml.storage.helper import StorageHelper

        target = f"{self._task.output_uri}/{self._task._get_output_destination_suffix('models')}/{name}"
        try:
            done = StorageHelper.get(target).upload(str(path), target, async_enable=False, return_canonized=False)
        except Exception as error:  # every storage has its own
            raise Refused(f"{path} was not uploaded: {type(error).__name__}: {error}") from error
        if not done:
            raise Refused(f"{path} was not uploaded to {target}")
        return target


def metadata_of(details: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return what a model shows beside its file: its metrics, where it is from, and what verifies it.

    Example:
        >>> metadata_of({"iteration": 3, "metrics": {"val_loss": 0.5}, "tags": ["best"]})
        {'val_loss': {'value': '0.5', 'type': 'float'}, 'iteration': {'value': '3', 'type': 'int'}}
    """
    shown = {**details.get("metrics", {}), **{key: details[key] for key in ORIGIN if details.get(key) is not None}}
    return {key: {"value": str(value), "type": type(value).__name__} for key, value in shown.items()}


ORIGIN = ("iteration", "epoch", "run", "file", "size", "checksum")


def fetched(task: Any, name: str, folder: Path) -> tuple[Path, str] | None:
    """Return a checkpoint that became an output model, as a file here, and its address, which has its checksum.

    A task that was killed between listing the model and registering its file has no checkpoint there.

    Args:
        task: The task.
        name: The name of the model in the task.
        folder: Where the file goes.
    """
    from clearml import InputModel

    there = (task.data.models.output or []) if task.data.models is not None else []
    id_ = next((item.model for item in there if item.name == name), None)
    if id_ is None:
        return None
    model = InputModel(model_id=id_)
    if str(model.url).endswith(NO_FILES):
        return None
    # The cache of the SDK knows a file by its address alone, and the address stays the same.
    local = model.get_local_copy(raise_on_error=True, force_download=True)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{Path(local).suffix}"
    shutil.copyfile(local, path)
    _FETCHED[path.absolute()] = str(model.url)
    return path, str(model.url)


_FETCHED: dict[Path, str] = {}
"""The addresses from which this process has fetched files."""


def address_of(path: Path) -> str:
    """Return the address of a checkpoint: that on the server, if it comes from there.

    Example:
        >>> address_of(Path("/data/a b.pth"))
        'file:///data/a%20b.pth'
    """
    return _FETCHED.get(path.absolute()) or path.absolute().as_uri()
