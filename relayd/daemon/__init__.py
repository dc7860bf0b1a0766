"""The running service: listener, connections, hosting of relays, waiting readers."""
