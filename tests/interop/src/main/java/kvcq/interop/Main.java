package kvcq.interop;

import java.nio.file.Path;

/**
 * The released RocketMQ store as the judge of ours: writes stores, and reads stores.
 *
 * <pre>
 * write both|rocksdb|prefilled DIR SEED COUNT    a new store in DIR
 * read  default|defaultRocksDB DIR JSON          what the original reads there
 * </pre>
 *
 * Opening a store with the original changes it (recovery, lock, checkpoint), so the caller hands
 * `read` a copy.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 5 && args[0].equals("write")) {
            Scenario.named(args[1]).write(
                Path.of(args[2]), Long.parseLong(args[3]), Integer.parseInt(args[4]));
        } else if (args.length == 4 && args[0].equals("read")) {
            Snapshot.write(args[1], Path.of(args[2]), Path.of(args[3]));
        } else {
            System.err.println("usage: write SCENARIO DIR SEED COUNT | read STORE_TYPE DIR JSON");
            System.exit(2);
        }
        // The original leaves threads running that are no daemons, also after its shutdown().
        System.exit(0);
    }
}
