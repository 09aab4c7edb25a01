"""`examples/cluster`: the recipes are what they say, as far as this machine can tell."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
import yaml

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "examples/cluster"

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
COUNT = {"type": "integer", "minimum": 0}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def several(items: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


CONTAINER = closed(
    ["name", "image"],
    name=NAME,
    image={"type": "string"},
    command=several({"type": "string"}),
    resources=closed([], limits={"type": "object", "additionalProperties": {"type": ["string", "integer"]}}),
    volumeMounts=several(closed(["name", "mountPath"], name=NAME, mountPath={"type": "string", "pattern": "^/"})),
)
POD = closed(
    ["containers", "restartPolicy"],
    restartPolicy={"enum": ["Never", "OnFailure"]},
    terminationGracePeriodSeconds=COUNT,
    containers=several(CONTAINER),
    volumes=several(closed(["name"], name=NAME, persistentVolumeClaim=closed(["claimName"], claimName=NAME))),
)
RULE = closed(
    ["action"],
    action={"enum": ["FailJob", "FailIndex", "Ignore", "Count"]},
    onPodConditions=several(closed(["type"], type={"type": "string"}, status={"enum": ["True", "False", "Unknown"]})),
)
JOB = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "batch/v1"},
    kind={"const": "Job"},
    metadata=closed(["name"], name=NAME),
    spec=closed(
        ["template"],
        backoffLimit=COUNT,
        podFailurePolicy=closed(["rules"], rules=several(RULE)),
        template=closed(["spec"], spec=POD),
    ),
)
"""The part of the schema of Kubernetes that the recipe uses, closed: a misspelt field is an error."""


def job() -> dict[str, Any]:
    return dict(yaml.safe_load((CLUSTER / "kubernetes.yaml").read_text()))


def test_the_job_of_kubernetes_fits_its_schema() -> None:
    jsonschema.validate(job(), JOB)
    pod = job()["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never", "a policy for failures needs it"
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == [one["name"] for one in pod["volumes"]]


@pytest.mark.parametrize("name", ["slurm.sh", "torchrun.sh", "spot.sh"])
def test_the_scripts_are_valid_and_executable(name: str) -> None:
    subprocess.run(["bash", "-n", str(CLUSTER / name)], check=True)
    assert os.access(CLUSTER / name, os.X_OK)


def test_the_recipes_name_files_and_options_that_exist() -> None:
    for path in CLUSTER.glob("*.*"):
        for named in re.findall(r"examples/cluster/[\w.]+", path.read_text()):
            assert (ROOT / named.rstrip(".")).exists(), f"{path.name}: {named}"


@pytest.mark.slow
@pytest.mark.faults
def test_a_pod_that_is_evicted_saves_and_the_next_one_goes_on(tmp_path: Path) -> None:
    (shell, option, command) = job()["spec"]["template"]["spec"]["containers"][0]["command"]
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = command.replace("/runs/a", shlex.quote(str(tmp_path / "a")))
    for epochs, code in ((100_000, 143), (0, 0)):
        wanted = epochs or int(torch.load(tmp_path / "a/last.pth", weights_only=True)["meta"]["epoch"]) + 1
        with subprocess.Popen(
            [shell, option, f"{command} --epochs {wanted}"],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as pod:
            assert pod.stdout is not None
            said = []
            for line in pod.stdout:
                said.append(line)
                if code and line.startswith("epoch 2 on 1"):
                    pod.send_signal(signal.SIGTERM)
        assert pod.returncode == code, "".join(said)
    assert "resumed from" in "".join(said)


@pytest.mark.slow
@pytest.mark.faults
def test_a_spot_instance_with_a_new_disk_goes_on_from_its_bucket(tmp_path: Path) -> None:
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "BUCKET": (tmp_path / "bucket").as_uri(),
        "NOTICE": (tmp_path / "notice").as_uri(),
        "PAUSE": "0.2",
    }
    said: list[str] = []
    for life, code in ((1, 143), (2, 0)):
        epochs = [] if life == 1 else ["--epochs", str(sum(line.startswith("epoch ") for line in said) + 2)]
        with subprocess.Popen(
            [str(CLUSTER / "spot.sh"), *(epochs or ["--epochs", "100000"])],
            cwd=ROOT,
            env={**variables, "DISK": str(tmp_path / f"disk {life}")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as machine:
            assert machine.stdout is not None
            said = []
            for line in machine.stdout:
                said.append(line)
                if life == 1 and line.startswith("epoch 2 on 1"):
                    (tmp_path / "notice").write_text("{}")
        (tmp_path / "notice").unlink(missing_ok=True)
        assert machine.returncode == code, "".join(said)
    assert "resumed from" in "".join(said)
