package kvcq.interop;

import java.nio.file.Path;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The stores that the original writes for us, each for what only it shows. */
enum Scenario {
    /** File queues, index files and RocksDB in double write, in two runs, so that files go on. */
    BOTH {
        @Override
        void write(Path root, long seed, int count) throws Exception {
            Workload workload = new Workload(seed);
            run(Settings.doubleWrite(root), workload, count / 2);
            run(Settings.doubleWrite(root), workload, count - count / 2);
        }
    },

    /** RocksDB alone, and every record with the CRC item at its end. */
    ROCKSDB {
        @Override
        void write(Path root, long seed, int count) throws Exception {
            MessageStoreConfig config = Settings.of(root, "defaultRocksDB");
            config.setEnabledAppendPropCRC(true);
            run(config, new Workload(seed), count);
        }
    },

    /**
     * RocksDB alone, then its oldest segments expire, then file queues are added: their first units
     * have offsets above 0, so the original fills the front of their files with blank units.
     */
    PREFILLED {
        @Override
        void write(Path root, long seed, int count) throws Exception {
            Workload workload = new Workload(seed);
            int first = count * 2 / 3;
            MessageStoreConfig config = Settings.of(root, "defaultRocksDB");
            try (OpenStore open = new OpenStore(config)) {
                new Writer(open).write(workload, first);
                // Interval 0, cleaned at once whatever the age, two files at most.
                open.store.getCommitLog().deleteExpiredFile(0, 0, 0, true, 2);
            }
            run(Settings.doubleWrite(root), workload, count - first);
        }
    };

    abstract void write(Path root, long seed, int count) throws Exception;

    static Scenario named(String name) {
        return valueOf(name.toUpperCase(java.util.Locale.ROOT));
    }

    private static void run(MessageStoreConfig config, Workload workload, int count)
        throws Exception {
        try (OpenStore open = new OpenStore(config)) {
            new Writer(open).write(workload, count);
        }
    }
}
