package io.github.fencelock.integration;

import io.github.fencelock.FencedLock;
import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.Options;
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
        return known.computeIfAbsent(key, k -> new RegistryLock(locks.asLock(prefix + "/" + k, options)));
    }

    @Override
    public void expireUnusedOlderThan(long age) {
        long now = System.currentTimeMillis();
        known.values().removeIf(l -> now - l.usedAt > age && !l.local.isLocked());
    }

    /** Takes the lock of the service, in one of the ways of {@link Lock}. */
    private interface Take<E extends Exception> {
        boolean run() throws E;
    }

    /** A lock of the registry: one of the service, and one for the threads of this process. */
    public final class RegistryLock implements Lock {
        private final FencedLock lock;
        private final ReentrantLock local = new ReentrantLock();
        private volatile long usedAt = System.currentTimeMillis();

        private RegistryLock(FencedLock lock) {
            this.lock = lock;
        }

        /**
         * The lease of this lock, for its token.
         *
         * @return of the thread that holds it
         */
        public Lease lease() {
            owned();
            return lock.lease();
        }

        private void owned() {
            if (!local.isHeldByCurrentThread()) {
                throw new IllegalMonitorStateException("You do not own lock at " + lock.name());
            }
        }

        @Override
        public void lock() {
            local.lock();
            take(() -> {
                lock.lock();
                return true;
            });
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            local.lockInterruptibly();
            take(() -> {
                lock.lockInterruptibly();
                return true;
            });
        }

        @Override
        public boolean tryLock() {
            return local.tryLock() && tryTake(lock::tryLock);
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            long began = System.nanoTime();
            return local.tryLock(time, unit)
                && tryTake(() -> lock.tryLock(unit.toNanos(time) - (System.nanoTime() - began), TimeUnit.NANOSECONDS));
        }

        private <E extends Exception> boolean tryTake(Take<E> take) throws E {
            try {
                return take(take);
            } catch (ConcurrentModificationException e) {
                return false;
            }
        }

        /** With the local lock. A thread that had it before learns here that the lease was lost, and holds nothing then. */
        private <E extends Exception> boolean take(Take<E> take) throws E {
            usedAt = System.currentTimeMillis();
            boolean taken = false;
            try {
                if (local.getHoldCount() == 1) {
                    taken = take.run();
                } else if (lock.isHeld()) {
                    taken = true;
                } else {
                    lock.unlock();
                    while (local.getHoldCount() > 1) {
                        local.unlock();
                    }
                    throw lost();
                }
                return taken;
            } finally {
                if (!taken) {
                    local.unlock();
                }
            }
        }

        private ConcurrentModificationException lost() {
            return new ConcurrentModificationException("the lock " + lock.name() + " was lost; another client may hold it");
        }

        @Override
        public void unlock() {
            owned();
            usedAt = System.currentTimeMillis();
            boolean held = lock.isHeld();
            if (local.getHoldCount() == 1) {
                lock.unlock();
            }
            local.unlock();
            if (!held) {
                throw lost();
            }
        }

        /** There are none. */
        @Override
        public Condition newCondition() {
            return lock.newCondition();
        }
    }
}
