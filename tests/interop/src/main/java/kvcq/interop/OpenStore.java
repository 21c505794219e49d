package kvcq.interop;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** One run of the original over a directory: load, recover and start; drain and shut down. */
final class OpenStore implements AutoCloseable {
    private static final long PATIENCE_MS = 60_000;

    final DefaultMessageStore store;

    OpenStore(MessageStoreConfig config) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("interop", false);
        BrokerConfig broker = new BrokerConfig();
        store = config.getStoreType().equals("defaultRocksDB")
            ? new RocksDBMessageStore(config, stats, (t, q, o, c, s, f, p) -> { }, broker,
                new ConcurrentHashMap<>())
            : new DefaultMessageStore(config, stats, (t, q, o, c, s, f, p) -> { }, broker,
                new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the original cannot load " + config.getStorePathRootDir());
        }
        store.start();
    }

    /** The log is handed to the dispatchers; RocksDB may still hold some of it in its queue. */
    void awaitDispatch() throws InterruptedException {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(
                    "the original hangs, " + store.dispatchBehindBytes() + " bytes not dispatched");
            }
            Thread.sleep(5);
        }
    }

    @Override
    public void close() throws Exception {
        awaitDispatch();
        store.shutdown();
        if (!store.isShutdown()) {
            throw new IllegalStateException("the original did not shut down");
        }
    }
}
