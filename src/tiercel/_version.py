"""The version of Tiercel: the single place that states it."""

__version__ = "0.1.0"
