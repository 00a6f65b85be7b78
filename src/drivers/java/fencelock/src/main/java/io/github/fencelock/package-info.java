/**
 * Locks of a fencelock cluster: with a lease that is renewed, word of its loss in time, and a fencing token that a storage checks.
 * {@link io.github.fencelock.Fencelock#connect(String)} is the beginning.
 */
package io.github.fencelock;
