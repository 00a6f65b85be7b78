package io.github.fencelock;

/** The lease was released before. */
public final class ReleasedException extends FencelockException {
    private static final long serialVersionUID = 1;

    ReleasedException(Throwable cause) {
        super("the lock was released", cause);
    }
}
