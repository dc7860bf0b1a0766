"""What travels between daemon and clients: frames, messages, records, cursors, limits, errors. Pure."""
