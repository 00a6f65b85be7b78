"""The guards' kit: one suite of attacks, and an adapter of seven functions for each storage. Needs only the standard library."""
