package io.github.fencelock;

/** The lock is lost: another client may hold it from now on. Stop. */
public final class LostException extends FencelockException {
    private static final long serialVersionUID = 1;

    LostException(Throwable cause) {
        super("the lock is lost; another client may hold it from now on", cause);
    }
}
