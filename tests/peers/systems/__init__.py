"""The systems that are measured, one file each, and the protocol of what they are asked."""
