"""Load scenarios, their checker and their report: what `kvcq bench` runs."""
