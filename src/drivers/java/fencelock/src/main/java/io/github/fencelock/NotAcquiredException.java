package io.github.fencelock;

/** Other clients held the lock for as long as the call was to wait. */
public final class NotAcquiredException extends FencelockException {
    private static final long serialVersionUID = 1;

    NotAcquiredException(Throwable cause) {
        super("another client holds the lock", cause);
    }
}
