package io.github.fencelock.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Runs the method under a lock. Before it begins, the lease is told to the database ({@code fence.claim}); each transaction that begins
 * inside carries the lease's token, on the connection that is bound to it. The lock is taken before the transaction and released after it.
 * On loss the thread is interrupted, and nothing is committed any more. A write that the guard refuses is a
 * {@link io.github.fencelock.StaleException}.
 *
 * <p>The database is the {@code DataSource} of the application, the primary one of several: a PostgreSQL with fencelock's guard. As with all
 * annotations of Spring, a method that is called by its own object has no lock. A method finds its lease in {@link Leases#current()}. It may call
 * others with other locks: a transaction carries the tokens of all methods that it begins in.
 */
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@Documented
public @interface Fenced {
    /**
     * The name of the lock, in SpEL: {@code "'account/' + #id"}, or a fixed one in quotes, {@code "'nightly'"}. Parameters have their names
     * if the class is compiled with -parameters, and {@code #p0}, {@code #p1} in any case.
     *
     * @return an expression
     */
    String lock();

    /**
     * How long the lock outlives a process that dies.
     *
     * @return such as 10s, 500ms, PT1M: 50 ms to a day; empty: that of {@code fencelock.ttl}
     */
    String ttl() default "";

    /**
     * How long to wait while others hold the lock.
     *
     * @return such as 30s; by default not at all, and then it is a {@link io.github.fencelock.NotAcquiredException}
     */
    String waitFor() default "0s";
}
