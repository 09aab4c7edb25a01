"""``python -m ignite_hooks``."""

import sys

from ignite_hooks.cli import main

sys.exit(main())
