"""The version of this build; a test compares it with pyproject.toml."""

VERSION = "0.1.0"
