/** A node for a test: {@link io.github.fencelock.test.FencelockServer}. */
package io.github.fencelock.test;
