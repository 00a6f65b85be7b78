package io.github.fencelock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/** A candidate for leadership: see {@link Fencelock#elect}. */
public final class Election implements AutoCloseable {
    private static final long PAUSE_MS = 1000;

    private final Fencelock locks;
    private final String name;
    private final Options options;
    private final Fencelock.Work<?> work;
    private final Thread thread;
    private final CompletableFuture<Void> over = new CompletableFuture<>();
    private volatile boolean stopping;
    private volatile Lease lease;

    Election(Fencelock locks, String name, Options options, Fencelock.Work<?> work) {
        this.locks = locks;
        this.name = name;
        this.options = options;
        this.work = work;
        thread = new Thread(this::run, "fencelock-election " + name);
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        try {
            boolean again = true;
            while (again && !stopping) {
                again = term();
            }
            over.complete(null);
        } catch (Throwable e) {
            over.completeExceptionally(e);
        }
    }

    /** Stands for election once, and leads. False: the work has returned while it led, so it resigns. */
    private boolean term() throws Exception {
        try {
            lease = locks.acquire(name, options);
        } catch (InterruptedException e) {
            return true; // it is stopping
        } catch (RefusedException | ClosedException e) {
            throw e;
        } catch (FencelockException e) {
            pause();
            return true;
        }
        boolean lost = false;
        try (Lease l = lease) {
            try {
                l.interruptOnLoss();
                work.run(l);
            } finally {
                lost = l.isLost();
            }
        } catch (Exception e) {
            if (!lost && !stopping) {
                throw e;
            }
        } finally {
            lease = null;
        }
        return lost;
    }

    private void pause() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException e) {
            // it is stopping
        }
    }

    /** @return whether this process leads now */
    public boolean isLeader() {
        Lease l = lease;
        return l != null && l.isHeld();
    }

    /** @return completes when the election is over; with the error of the work, or the refusal of the service */
    public CompletionStage<Void> over() {
        return over.minimalCompletionStage();
    }

    /**
     * Waits until the election is over.
     *
     * @throws InterruptedException when this thread is interrupted
     */
    public void join() throws InterruptedException {
        thread.join();
    }

    /** Interrupts the work, resigns when it has returned, and waits for that unless this thread is interrupted. */
    @Override
    public void close() {
        stopping = true;
        thread.interrupt();
        try {
            if (Thread.currentThread() != thread) {
                thread.join();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
