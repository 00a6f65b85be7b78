package io.github.fencelock;

/** All errors of this driver but wrong arguments, which are {@link IllegalArgumentException}. */
public class FencelockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * @param message what happened
     * @param cause why, or null
     */
    protected FencelockException(String message, Throwable cause) {
        super(message, cause);
    }

    static String because(Throwable cause) {
        return cause == null || cause.getMessage() == null ? "" : ": " + cause.getMessage();
    }
}
