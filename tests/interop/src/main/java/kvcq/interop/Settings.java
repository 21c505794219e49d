package kvcq.interop;

import java.nio.file.Path;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Settings of the original that both directions share. Sizes must be those of the files on disk. */
final class Settings {
    /** Small, so that a few hundred kilobytes make several segments with blank records. */
    static final int SEGMENT_BYTES = 128 * 1024;
    static final int UNITS_A_FILE = 16;
    /** Few slots make long chains; few entries make several index files. */
    static final int INDEX_SLOTS = 101;
    static final int INDEX_ENTRIES = 1000;

    private Settings() {
    }

    static MessageStoreConfig of(Path root, String storeType) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setStoreType(storeType);
        config.setMappedFileSizeCommitLog(Integer.getInteger("segmentBytes", SEGMENT_BYTES));
        config.setMappedFileSizeConsumeQueue(20 * Integer.getInteger("unitsPerFile", UNITS_A_FILE));
        config.setMaxHashSlotNum(Integer.getInteger("indexSlots", INDEX_SLOTS));
        config.setMaxIndexNum(Integer.getInteger("indexEntries", INDEX_ENTRIES));
        config.setEnabledAppendPropCRC(Boolean.getBoolean("crcItem"));
        config.setForceVerifyPropCRC(Boolean.getBoolean("crcItem"));
        config.setEnableLmq(true);
        config.setEnableMultiDispatch(true);
        // A query by key is to return all there is, not the first 64.
        config.setMaxMsgsNumBatch(1_000_000);
        // Nothing may expire by itself: the bytes are old by the time they are read.
        config.setFileReservedTime(24 * 365 * 100);
        config.setCleanFileForciblyEnable(false);
        config.setDiskMaxUsedSpaceRatio(95);
        config.setDiskSpaceWarningLevelRatio(99);
        // Any free port: two runs on one machine must not meet.
        config.setHaListenPort(0);
        // A second, unused copy of the queues for compacted topics.
        config.setEnableCompaction(false);
        return config;
    }

    /**
     * File queues and RocksDB at once. The files give out the offsets and are read.
     *
     * The other way round the original hangs on the first message with a light queue: dispatch to
     * the files asks the store that is read for the queue, and casts it to a file queue
     * (ClassCastException in ConsumeQueue.doDispatchLmqQueue, again and again).
     */
    static MessageStoreConfig doubleWrite(Path root) {
        MessageStoreConfig config = of(root, "default");
        config.setRocksdbCQDoubleWriteEnable(true);
        return config;
    }
}
