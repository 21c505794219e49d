"""Calls of every method with requests made at random: `make fuzz`, and fewer in the suite."""
