package kvcq.interop;

/** Keys that collide in the index of the original, which keeps only Java hashes. */
final class Hashes {
    private static final int DIGITS = 7;
    private static final int LOWEST = '@';

    private Hashes() {
    }

    /**
     * A text that ends `prefix` so that the whole has the Java hash `target`.
     *
     * Seven digits to the base 31, each shifted up to a printable character: 31^7 is above 2^32, so
     * there is always one.
     */
    static String suffixFor(String prefix, int target) {
        long range = 1L << 32;
        long power = 1;
        long shift = 0;
        for (int i = 0; i < DIGITS; i++) {
            shift += LOWEST * power;
            power *= 31;
        }
        long wanted = Math.floorMod(target - prefix.hashCode() * power - shift, range);
        char[] suffix = new char[DIGITS];
        for (int i = DIGITS - 1; i >= 0; i--) {
            suffix[i] = (char) (LOWEST + wanted % 31);
            wanted /= 31;
        }
        String found = new String(suffix);
        if ((prefix + found).hashCode() != target) {
            throw new AssertionError(prefix + found + " has another hash");
        }
        return found;
    }
}
