"""The gRPC services: each handler decodes, calls the store, and encodes."""
