/** Carries the token of a lease into transactions of a PostgreSQL database that has fencelock's guard: {@link io.github.fencelock.jdbc.Fence}. */
package io.github.fencelock.jdbc;
