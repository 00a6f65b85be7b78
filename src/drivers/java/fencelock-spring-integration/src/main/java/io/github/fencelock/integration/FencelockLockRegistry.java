package io.github.fencelock.integration;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.NotAcquiredException;
import io.github.fencelock.Options;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;

/**
 * Locks for Spring Integration. They are renewed while they are held. As the framework wants it, a lock is reentrant and its thread unlocks
 * it. {@code unlock()} of a lock that was lost is a {@link ConcurrentModificationException}, as with its registry for Redis.
 */
public final class FencelockLockRegistry implements ExpirableLockRegistry {
    private final Fencelock locks;
    private final String prefix;
    private final Options options;
    private final Map<String, RegistryLock> known = new ConcurrentHashMap<>();

    /**
     * With a TTL of 10 s.
     *
     * @param locks the client
     * @param prefix of the names: the key {@code foo} is the lock {@code prefix/foo}
     */
    public FencelockLockRegistry(Fencelock locks, String prefix) {
        this(locks, prefix, Options.NONE);
    }

    /**
     * With a TTL of your own.
     *
     * @param locks the client
     * @param prefix of the names
     * @param options TTL and value; the wait comes from the call
     */
    public FencelockLockRegistry(Fencelock locks, String prefix, Options options) {
        this.locks = locks;
        this.prefix = prefix;
        this.options = options;
    }

    @Override
    public RegistryLock obtain(Object lockKey) {
        if (!(lockKey instanceof String key)) {
            throw new IllegalArgumentException("the key of a lock is a String");
        }
        return known.computeIfAbsent(key, k -> new RegistryLock(prefix + "/" + k));
    }

    @Override
    public void expireUnusedOlderThan(long age) {
        long now = System.currentTimeMillis();
        known.values().removeIf(l -> now - l.usedAt > age && !l.local.isLocked());
    }

    /** A lock of the registry. */
    public final class RegistryLock implements Lock {
        private final String name;
        private final ReentrantLock local = new ReentrantLock();
        private Lease lease; // of the thread that has the local lock
        private volatile long usedAt = System.currentTimeMillis();

        private RegistryLock(String name) {
            this.name = name;
        }

        /**
         * The lease of this lock, for its token.
         *
         * @return of the thread that holds it
         */
        public Lease lease() {
            owned();
            return lease;
        }

        private void owned() {
            if (!local.isHeldByCurrentThread()) {
                throw new IllegalMonitorStateException("You do not own lock at " + name);
            }
        }

        @Override
        public void lock() {
            boolean interrupted = false;
            local.lock();
            try {
                for (boolean done = false; !done;) {
                    try {
                        take(null);
                        done = true;
                    } catch (InterruptedException e) {
                        interrupted = true;
                    }
                }
            } catch (RuntimeException e) {
                local.unlock();
                throw e;
            } finally {
                if (interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            local.lockInterruptibly();
            takeOrUnlock(null);
        }

        @Override
        public boolean tryLock() {
            boolean interrupted = Thread.interrupted();
            try {
                return tryLock(0, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                interrupted = true;
                return false;
            } finally {
                if (interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            long began = System.nanoTime();
            if (!local.tryLock(time, unit)) {
                return false;
            }
            try {
                takeOrUnlock(Duration.ofNanos(Math.max(0, unit.toNanos(time) - (System.nanoTime() - began))));
                return true;
            } catch (NotAcquiredException | ConcurrentModificationException e) {
                return false;
            }
        }

        private void takeOrUnlock(Duration wait) throws InterruptedException {
            boolean done = false;
            try {
                take(wait);
                done = true;
            } finally {
                if (!done && local.isHeldByCurrentThread()) {
                    local.unlock();
                }
            }
        }

        /** With the local lock. A thread that has it already learns here that the lease was lost, and holds nothing then. */
        private void take(Duration wait) throws InterruptedException {
            usedAt = System.currentTimeMillis();
            if (local.getHoldCount() == 1) {
                lease = locks.acquire(name, options.waitFor(wait));
            } else if (!lease.isHeld()) {
                while (local.getHoldCount() > 1) {
                    local.unlock();
                }
                throw lost();
            }
        }

        private ConcurrentModificationException lost() {
            return new ConcurrentModificationException("the lock " + name + " was lost; another client may hold it");
        }

        @Override
        public void unlock() {
            owned();
            usedAt = System.currentTimeMillis();
            boolean held = lease.isHeld();
            if (local.getHoldCount() == 1) {
                lease.close();
            }
            local.unlock();
            if (!held) {
                throw lost();
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("a lock of the service has no conditions");
        }
    }
}
