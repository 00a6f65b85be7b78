/** Locks of ShedLock that carry a fencing token: {@link io.github.fencelock.shedlock.FencelockLockProvider}. */
package io.github.fencelock.shedlock;
