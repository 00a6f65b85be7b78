package io.github.fencelock;

/** The lock is lost: another client may hold it from now on. Stop. */
public final class LostException extends FencelockException {
    private static final long serialVersionUID = 1;

    LostException(Lease lease) {
        super("the lock " + lease.name() + " with token " + lease.token() + " is lost; another client may hold it from now on", null);
    }
}
