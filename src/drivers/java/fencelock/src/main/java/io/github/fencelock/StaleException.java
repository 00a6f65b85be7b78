package io.github.fencelock;

/**
 * A newer holder has been at the storage, so nothing was done there. Do not repeat the write under this token: take the lock again. The
 * storage's own error is not the cause of this one, since frameworks look for it there and take it for a passing failure.
 */
public final class StaleException extends FencelockException {
    private static final long serialVersionUID = 1;

    /** @param message what the storage said */
    public StaleException(String message) {
        super("a newer holder of the lock has been at the storage: " + message, null);
    }
}
