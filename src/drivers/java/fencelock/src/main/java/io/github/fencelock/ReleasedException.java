package io.github.fencelock;

/** The lease was released before. */
public final class ReleasedException extends FencelockException {
    private static final long serialVersionUID = 1;

    ReleasedException(Lease lease) {
        super("the lock " + lease.name() + " with token " + lease.token() + " was released", null);
    }
}
