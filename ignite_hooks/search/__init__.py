"""Many runs of one configuration with other values, ranked by a metric."""

from ignite_hooks.search.in_python import search
from ignite_hooks.search.study import SearchResult, TrialRow

__all__ = ["SearchResult", "TrialRow", "search"]
