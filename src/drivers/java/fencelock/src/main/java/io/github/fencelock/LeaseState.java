package io.github.fencelock;

/**
 * What the holder of a lease may believe, and when to renew it. Pure: times and results of renewals come in; the state, and when the next
 * thing is due, come out. It is the state machine of the C library (src/client/lease.h) and passes the same vectors.
 *
 * <pre>
 *  sent            ttl/3          ttl/2                 deadline        the server's expiry
 *   |----- safe ----|---- safe ----|----- jeopardy -------|  lost  . . . . . .|
 *                 renewal due    none has come through        margin
 * </pre>
 *
 * Times count from before the request was sent, so the server's lease ends later than the client's.
 */
final class LeaseState {
    enum Outcome {
        RENEWED, // the service said yes
        GONE, // the service said that nothing is held under this name any more
        UNKNOWN // no answer, or a refusal for now: try again soon
    }

    static final long NEVER = Long.MAX_VALUE;

    private final long ttl;
    private State state = State.SAFE;
    private long until; // the end of the lease that is believed in
    private long renewAt;
    private long doubtAt;
    private boolean renewing;

    LeaseState(long sent, long ttl) {
        this.ttl = ttl;
        begin(sent);
    }

    /** From when on a lease that was asked for at sent must not be believed in. Two clocks may differ in speed by a hundredth. */
    static long leaseUntil(long sent, long ttl) {
        return sent + ttl - (ttl / 100 + 2);
    }

    private void begin(long sent) {
        until = leaseUntil(sent, ttl);
        doubtAt = sent + ttl / 2;
        renewAt = sent + ttl / 3;
    }

    /** Moves on to the time, and returns the state. */
    State at(long now) {
        if (state == State.LOST || now >= until) {
            state = State.LOST;
        } else if (now >= doubtAt) {
            state = State.JEOPARDY;
        }
        return state;
    }

    /** When the state changes or a renewal is due, if nothing else happens before. */
    long next() {
        if (state == State.LOST) {
            return NEVER;
        }
        long t = until;
        if (state == State.SAFE) {
            t = Math.min(t, doubtAt);
        }
        return renewing ? t : Math.min(t, renewAt);
    }

    boolean wantsRenewal(long now) {
        return state != State.LOST && !renewing && now >= renewAt && now < until;
    }

    boolean isRenewing() {
        return renewing;
    }

    void renewalBegan() {
        renewing = true;
    }

    /** The outcome of the renewal that was sent at sent. A deadline that has passed is final. */
    void renewalEnded(long now, Outcome outcome, long sent) {
        renewing = false;
        if (at(now) == State.LOST) {
            return;
        }
        switch (outcome) {
            case GONE -> state = State.LOST;
            case UNKNOWN -> {
                state = State.JEOPARDY;
                renewAt = now + ttl / 20 + 1;
            }
            default -> renewed(now, sent);
        }
    }

    void renewed(long now, long sent) {
        if (leaseUntil(sent, ttl) > until) {
            begin(sent);
        }
        state = State.SAFE;
        at(now);
    }

    void lose() {
        state = State.LOST;
    }

    long until() {
        return until;
    }

    long remaining(long now) {
        return state == State.LOST || now >= until ? 0 : until - now;
    }
}
