"""Commands for the directory of a stopped store."""
