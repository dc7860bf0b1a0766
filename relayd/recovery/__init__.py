"""From disk to memory: snapshots, opening, torn tails, quarantine, salvage, seeds."""
