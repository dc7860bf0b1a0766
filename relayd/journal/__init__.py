"""What is on disk: segments and groups, the writer, page reads, sealing, collection."""
