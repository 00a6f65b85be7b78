package io.github.fencelock;

/** The client was closed. */
public final class ClosedException extends FencelockException {
    private static final long serialVersionUID = 1;

    ClosedException(Throwable cause) {
        super("the client is closed", cause);
    }
}
