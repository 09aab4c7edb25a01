"""The documentation, and the package that makes its pages."""
