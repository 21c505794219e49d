package kvcq.interop.broker;

import com.google.gson.GsonBuilder;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Messages that a broker delivers later: some are delivered while it runs, the others wait. */
final class Waiting {
    private static final String TOPIC = "orders";
    private static final int QUEUES = 2;
    private static final long LATER_MS = 40_000;

    private Waiting() {
    }

    static void write(Broker broker) throws Exception {
        broker.controller.getTopicConfigManager().updateTopicConfig(
            new TopicConfig(TOPIC, QUEUES, QUEUES, 6));
        long now = System.currentTimeMillis();
        put(broker, delayed("level-done", 1));
        put(broker, delayed("level-waits", 5));
        put(broker, delayed("level-waits-long", 18));
        put(broker, timer("timer-done", now + 2_000));
        put(broker, timer("timer-waits", now + LATER_MS));
        put(broker, timer("timer-waits-days", now + 50 * 3_600_000L));
        put(broker, timer("timer-recalled", now + LATER_MS));
        MessageExtBrokerInner recall = timer("recall", now + LATER_MS);
        MessageAccessor.putProperty(recall, MessageConst.PROPERTY_TIMER_DEL_UNIQKEY, "timer-recalled");
        put(broker, recall);
        half(broker, "half-open");
        decide(broker, half(broker, "half-committed"), "half-committed");
        decide(broker, half(broker, "half-rolled-back"), null);
        Thread.sleep(12_000);
    }

    /** Waits, and says what came to the topic and which halves a broker asks about. */
    static void deliver(Broker broker, int seconds, Path answer) throws Exception {
        Thread.sleep(seconds * 1000L);
        List<String> asked = new ArrayList<>();
        broker.controller.getTransactionalMessageService().check(0, 15,
            new AbstractTransactionalMessageCheckListener(broker.controller) {
                @Override
                public void resolveHalfMsg(MessageExt half) {
                    asked.add(new String(half.getBody(), StandardCharsets.UTF_8));
                }

                @Override
                public void resolveDiscardMsg(MessageExt half) {
                    asked.add("given up: " + new String(half.getBody(), StandardCharsets.UTF_8));
                }
            });
        broker.awaitDispatch();
        List<String> bodies = new ArrayList<>();
        MessageStore store = broker.controller.getMessageStore();
        for (int queue = 0; queue < QUEUES; queue++) {
            long at = store.getMinOffsetInQueue(TOPIC, queue);
            while (at < store.getMaxOffsetInQueue(TOPIC, queue)) {
                GetMessageResult page = store.getMessage("interop", TOPIC, queue, at, 32, null);
                for (SelectMappedBufferResult each : page.getMessageMapedList()) {
                    MessageExt message = MessageDecoder.decode(each.getByteBuffer(), true, false);
                    bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
                }
                at = page.getNextBeginOffset();
                page.release();
            }
        }
        Map<String, Object> document = new TreeMap<>(Map.of("bodies", bodies, "asked", asked));
        Files.writeString(answer, new GsonBuilder().disableHtmlEscaping().create().toJson(document));
    }

    private static MessageExtBrokerInner delayed(String name, int level) {
        MessageExtBrokerInner message = message(name);
        message.setDelayTimeLevel(level);
        return message;
    }

    private static MessageExtBrokerInner timer(String name, long due) {
        MessageExtBrokerInner message = message(name);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_DELIVER_MS, "" + due);
        return message;
    }

    private static MessageExt half(Broker broker, String name) {
        MessageExtBrokerInner message = message(name);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, "producers");
        encode(message);
        PutMessageResult put =
            broker.controller.getTransactionalMessageService().prepareMessage(message);
        if (!put.isOk()) {
            throw new IllegalStateException(put + " for half " + name);
        }
        return broker.controller.getMessageStore().lookMessageByOffset(
            put.getAppendMessageResult().getWroteOffset());
    }

    private static void decide(Broker broker, MessageExt half, String committed) {
        if (committed != null) {
            put(broker, message(committed));
        }
        broker.controller.getTransactionalMessageService().deletePrepareMessage(half);
    }

    private static MessageExtBrokerInner message(String name) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(1);
        message.setBody(name.getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, name);
        return message;
    }

    private static void encode(MessageExtBrokerInner message) {
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
    }

    private static void put(Broker broker, MessageExtBrokerInner message) {
        encode(message);
        PutMessageResult result = broker.controller.getMessageStore().putMessage(message);
        if (!result.isOk()) {
            throw new IllegalStateException(result + " for " + new String(message.getBody()));
        }
    }
}
