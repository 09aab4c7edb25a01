"""The version of this package; a module that nothing has to be imported for."""

__version__ = "0.2.0"
