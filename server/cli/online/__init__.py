"""Commands that talk to a running server, through the client alone."""
