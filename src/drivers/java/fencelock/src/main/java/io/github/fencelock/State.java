package io.github.fencelock;

/** What the holder of a lease may believe. */
public enum State {
    /** The last renewal succeeded in time. */
    SAFE,
    /** No renewal has succeeded for half of the TTL, or one has failed. Begin nothing that takes long. */
    JEOPARDY,
    /** The lease is over, for good: stop. */
    LOST
}
