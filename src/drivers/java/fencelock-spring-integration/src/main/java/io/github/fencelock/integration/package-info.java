/** A registry of locks for Spring Integration: {@link io.github.fencelock.integration.FencelockLockRegistry}. */
package io.github.fencelock.integration;
