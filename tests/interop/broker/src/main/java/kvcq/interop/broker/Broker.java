package kvcq.interop.broker;

import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One run of the broker over a directory; `form` says where it keeps topics, groups, offsets. */
final class Broker implements AutoCloseable {
    final BrokerController controller;

    Broker(String form, Path root) throws Exception {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root.toString());
        store.setStorePathCommitLog(root.resolve("commitlog").toString());
        // Small files: most of what these stores are for is in `config/`.
        store.setMappedFileSizeCommitLog(64 * 1024);
        store.setMappedFileSizeConsumeQueue(20 * Integer.getInteger("unitsPerFile", 16));
        store.setMaxHashSlotNum(Integer.getInteger("indexSlots", 101));
        store.setMaxIndexNum(Integer.getInteger("indexEntries", 1000));
        store.setFileReservedTime(24 * 365 * 100);
        store.setDiskMaxUsedSpaceRatio(95);
        store.setDiskSpaceWarningLevelRatio(99);
        // It has files of 38 MB.
        store.setTimerWheelEnable(form.equals("waiting"));
        store.setEnableCompaction(false);
        store.setHaListenPort(freePort());
        store.setEnableLmq(!form.equals("files") && !form.equals("waiting"));
        store.setEnableMultiDispatch(true);
        boolean onFiles = List.of("files", "lmq", "waiting").contains(form);
        store.setStoreType(onFiles ? "default" : "defaultRocksDB");

        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("interop");
        broker.setBrokerIP1("127.0.0.1");
        broker.setConfigManagerVersion(form.equals("v2") ? "v2" : "v1");
        broker.setUseSingleRocksDBForAllConfigs(form.equals("single"));
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(freePort());
        controller = new BrokerController(broker, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker cannot be initialized on " + root);
        }
        controller.start();
    }

    /** Any; the broker also takes the one two below it. */
    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    void awaitDispatch() throws InterruptedException {
        long end = System.currentTimeMillis() + 60_000;
        while (controller.getMessageStore().dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("the broker does not dispatch");
            }
            Thread.sleep(5);
        }
        // RocksDB takes its requests from a queue of its own.
        Thread.sleep(1000);
    }

    @Override
    public void close() {
        controller.shutdown();
    }
}
