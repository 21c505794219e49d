"""`python -m server` is `kvcq`."""

from server.cli.main import main

main(prog_name="kvcq")
