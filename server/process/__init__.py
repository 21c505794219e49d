"""What a process sets for itself: its streams, descriptors, memory and end."""
