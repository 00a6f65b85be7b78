package io.github.fencelock;

import java.time.Duration;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of the service as a {@link Lock}. It is not reentrant, and any thread may unlock it: the owner is the lease, not the thread. When
 * the lease is lost, {@code unlock} is still due before this object locks again; it says nothing then, so it hides no error of the work.
 */
public final class FencedLock implements Lock {
    private final Fencelock locks;
    private final String name;
    private final Options options;
    private final Semaphore free = new Semaphore(1, true); // of this object; it knows no thread
    private volatile Lease lease;

    FencedLock(Fencelock locks, String name, Options options) {
        this.locks = locks;
        this.name = name;
        this.options = options;
    }

    /** @return the name */
    public String name() {
        return name;
    }

    /**
     * The lease of the lock that is held.
     *
     * @return has the token, and tells of a loss
     */
    public Lease lease() {
        Lease l = lease;
        if (l == null) {
            throw new IllegalMonitorStateException("the lock " + name + " is not locked by this object");
        }
        return l;
    }

    /** @return whether it is locked by this object, and not lost */
    public boolean isHeld() {
        Lease l = lease;
        return l != null && l.isHeld();
    }

    /**
     * Locks.
     *
     * @return the fencing token
     */
    public long lockAndGetFence() {
        lock();
        return lease().token();
    }

    @Override
    public void lock() {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    lockInterruptibly();
                    return;
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        free.acquire();
        take(null);
    }

    /** Does not wait for another holder, but for the answer of the service: up to ten seconds when no node serves. */
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
        if (!free.tryAcquire(time, unit)) {
            return false;
        }
        Duration left = Duration.ofNanos(Math.max(0, unit.toNanos(time) - (System.nanoTime() - began)));
        try {
            take(left);
            return true;
        } catch (NotAcquiredException e) {
            return false;
        }
    }

    private void take(Duration wait) throws InterruptedException {
        Lease taken = null;
        try {
            taken = locks.acquire(name, options.waitFor(wait));
        } finally {
            if (taken == null) {
                free.release();
            }
        }
        lease = taken;
    }

    @Override
    public void unlock() {
        Lease l;
        synchronized (this) {
            l = lease();
            lease = null;
        }
        l.close();
        free.release();
    }

    /** There are none. */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of the service has no conditions");
    }

    /** @return the name, and the token when it is locked */
    @Override
    public String toString() {
        return "FencedLock " + (lease == null ? name : lease);
    }
}
