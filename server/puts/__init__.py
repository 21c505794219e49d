"""The way of messages into the store: one at a time, in batches, numbered, and as a stream."""
