package kvcq.peers;

/** This kind of work is not to be had here; the text says why. */
final class NotOfferedException extends Exception {
    private static final long serialVersionUID = 1L;

    NotOfferedException(String message) {
        super(message);
    }
}
