package kvcq.interop;

import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts a workload, one message after the other, so that physical offsets follow from the seed. */
final class Writer {
    private final OpenStore open;

    Writer(OpenStore open) {
        this.open = open;
        open.store.getPutMessageHookList().add(new BrokerHooks(open.store.getMaxDelayLevel()));
    }

    void write(Workload workload, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            if (i % 16 == 0) {
                // Store times are to differ between groups and to be equal within many of them.
                Thread.sleep(2);
            }
            put(workload.next());
            if (workload.nextIsTransaction()) {
                long prepared = put(workload.half());
                put(workload.committed(prepared));
            }
        }
        open.awaitDispatch();
        // RocksDB takes its requests from a queue of its own, 256 a time; a shutdown would drop
        // what is still in it. The last queues must show their ends first.
        Thread.sleep(1000);
    }

    private long put(MessageExtBrokerInner message) {
        PutMessageResult result = message instanceof MessageExtBatch
            ? open.store.putMessages((MessageExtBatch) message)
            : open.store.putMessage(message);
        if (!result.isOk()) {
            throw new IllegalStateException(result + " for a message to " + message.getTopic());
        }
        return result.getAppendMessageResult().getWroteOffset();
    }
}
