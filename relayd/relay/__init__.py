"""What a relay is: state, decide, fold. No I/O, no clock, no randomness."""
