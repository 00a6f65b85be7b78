package io.github.fencelock.shedlock;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.NotAcquiredException;
import io.github.fencelock.Options;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * A provider for ShedLock. The lock is renewed while the job runs: it is free one TTL after the process died, however long lockAtMostFor is.
 * The lock of a job that runs for longer than lockAtMostFor is given back, since ShedLock promises that. lockAtLeastFor holds as long as
 * this process lives.
 *
 * <p>The job finds its fencing token in {@link #currentLease()}.
 */
public final class FencelockLockProvider implements ExtensibleLockProvider {
    private static final ThreadLocal<Deque<Held>> CURRENT = ThreadLocal.withInitial(ArrayDeque::new);

    private final Fencelock locks;
    private final Options options;
    private final String prefix;
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(r -> {
        Thread t = new Thread(r, "fencelock-shedlock");
        t.setDaemon(true);
        return t;
    });

    /**
     * With a TTL of 10 s, and names that begin with {@code shedlock/}.
     *
     * @param locks the client
     */
    public FencelockLockProvider(Fencelock locks) {
        this(locks, Options.NONE, "shedlock/");
    }

    /**
     * With a TTL and a prefix of your own.
     *
     * @param locks the client
     * @param options TTL and value; the wait is not used
     * @param prefix of the names
     */
    public FencelockLockProvider(Fencelock locks, Options options, String prefix) {
        this.locks = locks;
        this.options = options.waitFor(Duration.ZERO);
        this.prefix = prefix;
    }

    /**
     * The lease of the job that runs in this thread, the innermost one: for its token, {@code check()} and {@code onLost}.
     *
     * @return empty in a thread that runs no job of ShedLock
     */
    public static Optional<Lease> currentLease() {
        return Optional.ofNullable(current().peekLast()).map(held -> held.lease);
    }

    /** The locks that this thread took and nobody has unlocked: another thread may do that. */
    private static Deque<Held> current() {
        CURRENT.get().removeIf(held -> held.unlocked);
        return CURRENT.get();
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            Held held = new Held(locks.acquire(prefix + configuration.getName(), options));
            current().addLast(held);
            return Optional.of(new Locked(configuration, held));
        } catch (NotAcquiredException e) {
            return Optional.empty();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    /** A lease that ends at a time. */
    private final class Held {
        private final Lease lease;
        private Future<?> end;
        private volatile boolean unlocked;

        Held(Lease lease) {
            this.lease = lease;
        }

        /** From now on it ends then; false when it has ended. */
        synchronized boolean until(Instant time) {
            if (end != null) {
                end.cancel(false);
            }
            long ns = Math.max(0, Duration.between(ClockProvider.now(), time).toNanos());
            if (lease.isHeld()) {
                end = timer.schedule(this::end, ns, TimeUnit.NANOSECONDS);
            }
            return lease.isHeld();
        }

        synchronized void end() {
            if (end != null) {
                end.cancel(false);
            }
            lease.close();
        }
    }

    private final class Locked extends AbstractSimpleLock {
        private final Held held;

        Locked(LockConfiguration configuration, Held held) {
            super(configuration);
            this.held = held;
            held.until(configuration.getLockAtMostUntil());
        }

        @Override
        protected void doUnlock() {
            held.unlocked = true;
            if (ClockProvider.now().isBefore(lockConfiguration.getLockAtLeastUntil())) {
                held.until(lockConfiguration.getLockAtLeastUntil());
            } else {
                held.end();
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            boolean over = !ClockProvider.now().isBefore(lockConfiguration.getLockAtMostUntil());
            if (over || !held.until(configuration.getLockAtMostUntil())) {
                held.unlocked = true;
                held.end();
                return Optional.empty();
            }
            return Optional.of(new Locked(configuration, held));
        }
    }
}
