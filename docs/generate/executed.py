"""Execute the notebooks for the site: ``make docs`` runs this before it builds, which takes a minute."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).parents[2]
COPIES = ROOT / ".cache" / "notebooks"


def main() -> None:
    """Write an executed copy of every notebook; nothing is left beside the notebooks themselves."""
    COPIES.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        print(f"executing {path.name}", file=sys.stderr, flush=True)
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            # Nothing of the user's: ClearML keeps its sessions, and reads its servers, in the home directory.
            os.environ |= {"CLEARML_CACHE_DIR": f"{folder}/.clearml", "CLEARML_CONFIG_FILE": f"{folder}/clearml.conf"}
            nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
        nbformat.write(notebook, COPIES / path.name)


if __name__ == "__main__":
    main()
