/** Jobs of Quartz under locks: {@link io.github.fencelock.quartz.FencelockJobFactory}. */
package io.github.fencelock.quartz;
