"""Generated from proto/ by `make proto`: the messages and stubs of the service. Not edited by hand.

They lie in this package, because a top-level `proto` belongs to whoever installs one: proto-plus
does, and so does many a project with a `proto/` folder of its own.
"""
