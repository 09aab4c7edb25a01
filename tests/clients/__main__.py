"""``make clients``: software of others with our line and without it, from the sources in ``CLIENTS_SOURCES``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.clients import configurations, ignite_tests, scripts


def main() -> int:
    """Run everything; exit with 1 where anything differs that `docs/clients.md` does not explain."""
    folder = os.environ.get("CLIENTS_SOURCES")
    if not folder or not Path(folder).is_dir():
        print("CLIENTS_SOURCES names no folder: docs/clients.md lists the repositories that belong there")
        return 2
    source = Path(folder).resolve()
    return int(any([configurations.main(source), scripts.main(source), ignite_tests.main(source)]))


if __name__ == "__main__":
    sys.exit(main())
