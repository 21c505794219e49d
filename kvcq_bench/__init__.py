"""Load scenarios, the checker of their messages, and their report: `kvcq bench`."""
