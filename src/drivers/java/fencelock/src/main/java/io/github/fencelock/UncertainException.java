package io.github.fencelock;

/** The outcome is unknown: the request may have been carried out. The driver gives back what it may have got. */
public final class UncertainException extends FencelockException {
    private static final long serialVersionUID = 1;

    UncertainException(Throwable cause) {
        super("the outcome is unknown" + because(cause), cause);
    }
}
