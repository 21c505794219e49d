"""Kills and power losses by the hundred, against a server process: `make campaign`.

A campaign runs a server, puts load on it, ends it in the worst way it can, starts it again and
compares all that can be read with what was acknowledged. `__main__` has the options; `model` says
what must hold, `limits` what topics may hide; `workload` makes the calls; `judge` and `retention`
read; `owner` says what workers are that own their topics and judge themselves: `shared`, `timed`,
`decided`, `lite`; `lives` starts and ends servers; `disk` loses power. It talks to the server over
gRPC alone, and imports nothing of it but the check of a stopped store.
"""
