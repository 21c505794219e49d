"""The version of this build; a test holds it to pyproject.toml."""

VERSION = "0.1.0"
