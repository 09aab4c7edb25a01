"""``python -m ignite_hooks``."""

import sys

from ignite_hooks.cli.app import main

sys.exit(main())
