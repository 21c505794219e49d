package kvcq.interop.broker;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.PutMessageResult;

/** Topics, one of them empty and one deleted; groups, one of them without an offset; offsets. */
final class Writer {
    private static final String LIGHT = "%LMQ%device-1";

    private Writer() {
    }

    static void write(Broker broker) throws Exception {
        topic(broker, "orders", 4);
        topic(broker, "empty", 2);
        topic(broker, "gone", 3);
        for (String group : new String[] {"billing", "audit", "silent"}) {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(group);
            broker.controller.getSubscriptionGroupManager().updateSubscriptionGroupConfig(config);
        }
        for (int i = 0; i < 60; i++) {
            put(broker, "orders", i % 4, "order-" + i, i % 3 == 0);
        }
        for (int i = 0; i < 9; i++) {
            put(broker, "gone", i % 3, "gone-" + i, false);
        }
        broker.awaitDispatch();
        ConsumerOffsetManager offsets = broker.controller.getConsumerOffsetManager();
        for (int queue = 0; queue < 4; queue++) {
            offsets.commitOffset("interop", "billing", "orders", queue, 10 + queue);
            offsets.commitOffset("interop", "audit", "orders", queue, queue);
        }
        offsets.commitOffset("interop", "billing", LIGHT, 0, 5);
        offsets.commitOffset("interop", "%LMQ%reader", LIGHT, 0, 7);
        offsets.commitOffset("interop", "billing", "gone", 0, 2);
        delete(broker, "gone");
        offsets.persist();
        // Writes of the second form are batched for a tenth of a second.
        Thread.sleep(500);
    }

    private static void topic(Broker broker, String name, int queues) {
        broker.controller.getTopicConfigManager().updateTopicConfig(
            new TopicConfig(name, queues, queues, 6));
    }

    private static void delete(Broker broker, String name) {
        broker.controller.getTopicConfigManager().deleteTopicConfig(name);
        broker.controller.getConsumerOffsetManager().cleanOffsetByTopic(name);
        broker.controller.getMessageStore().deleteTopics(Set.of(name));
    }

    private static void put(Broker broker, String topic, int queue, String key, boolean light) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBody(key.getBytes(StandardCharsets.UTF_8));
        message.setKeys(key);
        message.setTags(queue % 2 == 0 ? "even" : "odd");
        message.setBornTimestamp(1_700_000_000_000L);
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        if (light) {
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", LIGHT);
        }
        message.setTagsCode(message.getTags().hashCode());
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = broker.controller.getMessageStore().putMessage(message);
        if (!result.isOk()) {
            throw new IllegalStateException(result + " for a message to " + topic);
        }
    }
}
