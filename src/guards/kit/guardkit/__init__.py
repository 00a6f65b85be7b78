"""The guards' kit: one suite of attacks, and an adapter of seven functions for each storage. Standard library only."""
