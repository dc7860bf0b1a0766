"""The command line: one file per command group; it prints, it never decides."""
