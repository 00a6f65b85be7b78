package io.github.fencelock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A lock that is held, and renewed until it is released or lost. Any thread may use it: the owner is the lease. Whether it is still held can
 * be asked at any time ({@link #check}); the driver tells of a loss as well ({@link #onLost}, {@link #interruptOnLoss}). Both come before
 * another client can hold the lock, unless this process stands still meanwhile: that is what the token is for.
 */
public final class Lease implements AutoCloseable {
    private static final long RELEASE_MS = 5000;

    private enum End { LOST, RELEASED }

    private final Session session;
    private final Threads threads;
    private final Session.Wanted wanted;
    private final long token;
    private final AtomicReference<End> end = new AtomicReference<>();
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    private Thread interrupts; // is interrupted when the lease is lost
    private boolean interrupted; // that has been done

    Lease(Session session, Threads threads, Session.Wanted wanted, long token) {
        this.session = session;
        this.threads = threads;
        this.wanted = wanted;
        this.token = token;
    }

    List<String> names() {
        return wanted.names();
    }

    /** @return the name of the lock, the first one when there are several */
    public String name() {
        return wanted.names().get(0);
    }

    /**
     * The fencing token of this lease. Every write at the storage carries it. It is larger than the tokens of all earlier holders.
     *
     * @return the token
     */
    public long token() {
        return token;
    }

    /**
     * Looks at the clock, so it is right also in the first moment after the process was stopped.
     *
     * @throws LostException when the lease is lost
     * @throws ReleasedException when it was released
     */
    public void check() {
        FencelockException over = over();
        if (over != null) {
            throw over;
        }
    }

    private FencelockException over() {
        End why = end.get();
        if (why == null && session.remaining() == 0) {
            session.poke();
            why = End.LOST;
        }
        if (why == null) {
            return null;
        }
        return why == End.LOST ? new LostException(this) : new ReleasedException(this);
    }

    /** @return whether the lease may be believed in now */
    public boolean isHeld() {
        return over() == null;
    }

    /** @return whether it is lost; false also after a release */
    public boolean isLost() {
        return over() instanceof LostException;
    }

    /** @return whether renewals succeed in time ({@link State#SAFE}), are late, or the lease is over */
    public State state() {
        return end.get() != null ? State.LOST : session.state();
    }

    /** @return how long the lease may be believed in if no further renewal succeeds; zero when it is over */
    public Duration remaining() {
        return end.get() != null ? Duration.ZERO : Duration.ofMillis(session.remaining());
    }

    /**
     * Runs the action once when the lock is lost, in a thread of the driver; at once when it is lost already. Never after a release.
     *
     * @param action short, or it hands on what takes long
     */
    public void onLost(Runnable action) {
        lost.thenRun(action);
    }

    /**
     * For reactive code.
     *
     * @return completes when the lock is lost; never after a release
     */
    public CompletionStage<Void> lost() {
        return lost.minimalCompletionStage();
    }

    /**
     * Interrupts this thread when the lock is lost, until {@link #close} or {@link #release}, which take back an interrupt that is late.
     *
     * @return this lease
     */
    public synchronized Lease interruptOnLoss() {
        interrupts = Thread.currentThread();
        if (end.get() == End.LOST) {
            interrupt();
        }
        return this;
    }

    private synchronized void interrupt() {
        if (interrupts != null && !interrupted) {
            interrupted = true;
            interrupts.interrupt();
        }
    }

    /**
     * The end of {@link #interruptOnLoss}, for a lease that is held for longer than its work lasts. In the thread of the work it takes back
     * an interrupt that is late.
     */
    public synchronized void interruptNoMore() {
        if (interrupted && interrupts == Thread.currentThread()) {
            Thread.interrupted();
        }
        interrupts = null;
    }

    /** Ends the lease once. */
    void end(boolean isLost) {
        if (!end.compareAndSet(null, isLost ? End.LOST : End.RELEASED) || !isLost) {
            return;
        }
        interrupt();
        threads.executeSurely(() -> lost.complete(null));
    }

    /**
     * Gives the lock back. It waits five seconds for the answer at most, also in a thread that was interrupted; a release without an answer,
     * or one that is refused, goes on in the background, so the lock does not stay held. An error after the work is done is no reason to do it
     * again.
     *
     * @throws LostException when the lease had ended before
     * @throws UncertainException when there was no answer
     * @throws UnavailableException when no node served
     * @throws RefusedException when a node refuses it
     */
    public void release() {
        interruptNoMore();
        FencelockException had = over();
        if (had == null) {
            end(false);
        }
        boolean interruption = Thread.interrupted();
        boolean released = false;
        try {
            released = session.release(this, wanted, RELEASE_MS);
        } catch (InterruptedException e) {
            interruption = true;
            throw new UncertainException(e);
        } finally {
            if (interruption) {
                Thread.currentThread().interrupt();
            }
        }
        if (had != null) {
            throw had;
        }
        if (!released) {
            throw new LostException(this);
        }
    }

    /** {@link #release}, whose failure is no error: the work is done, and the lock is given back in the background. */
    @Override
    public void close() {
        try {
            release();
        } catch (FencelockException e) {
            // isLost() tells of the one that matters
        }
    }

    /** @return the name and the token */
    @Override
    public String toString() {
        return name() + " " + token;
    }
}
