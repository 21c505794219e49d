package kvcq.interop.broker;

import com.google.gson.GsonBuilder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * What a started broker knows: topics with their types, groups with their settings, offsets of the
 * groups given, bodies of queues.
 */
final class Reader {
    private static final String[] GROUPS =
        {"billing", "audit", "silent", "fresh", "%LMQ%reader"};

    private Reader() {
    }

    static void read(Broker broker, Path answer) throws Exception {
        broker.awaitDispatch();
        Map<String, Object> document = new TreeMap<>();
        Map<String, Integer> topics = new TreeMap<>();
        Map<String, String> types = new TreeMap<>();
        Map<String, List<String>> bodies = new TreeMap<>();
        for (TopicConfig config
            : broker.controller.getTopicConfigManager().getTopicConfigTable().values()) {
            topics.put(config.getTopicName(), config.getWriteQueueNums());
            types.put(config.getTopicName(), config.getTopicMessageType().getValue()
                + " " + config.getLiteTopicExpiration());
            for (int queue = 0; queue < config.getWriteQueueNums(); queue++) {
                bodies(broker.controller.getMessageStore(), config.getTopicName(), queue, bodies);
            }
        }
        bodies(broker.controller.getMessageStore(), "%LMQ%device-1", 0, bodies);
        document.put("topics", topics);
        document.put("types", types);
        Map<String, SubscriptionGroupConfig> groups = new TreeMap<>(
            broker.controller.getSubscriptionGroupManager().getSubscriptionGroupTable());
        document.put("groups", new ArrayList<>(groups.keySet()));
        document.put("settings", settings(groups));
        document.put("offsets", offsets(broker.controller.getConsumerOffsetManager(), topics));
        document.put("bodies", bodies);
        Files.writeString(answer, new GsonBuilder().disableHtmlEscaping().create().toJson(document));
    }

    private static Map<String, Object> settings(Map<String, SubscriptionGroupConfig> groups) {
        Map<String, Object> found = new TreeMap<>();
        groups.forEach((name, group) -> found.put(name, List.of(
            group.isConsumeEnable(), group.isConsumeMessageOrderly(), group.getRetryMaxTimes(),
            group.getGroupRetryPolicy().getRetryPolicy().nextDelayDuration(0),
            String.valueOf(group.getLiteBindTopic()), group.getLiteSubClientQuota(),
            group.isLiteSubExclusive(), group.isWildcardLiteGroup())));
        return found;
    }

    private static Map<String, Long> offsets(
        ConsumerOffsetManager manager, Map<String, Integer> topics) {
        Map<String, Long> found = new TreeMap<>();
        Map<String, Integer> queues = new TreeMap<>(topics);
        queues.put("%LMQ%device-1", 1);
        queues.put("gone", 3);
        for (String group : GROUPS) {
            for (Map.Entry<String, Integer> topic : queues.entrySet()) {
                for (int queue = 0; queue < topic.getValue(); queue++) {
                    // For every queue id alike a group of a light queue has one offset.
                    long offset = manager.queryOffset(group, topic.getKey(), queue);
                    if (offset >= 0) {
                        found.put(topic.getKey() + "@" + group + ":" + queue, offset);
                    }
                }
            }
        }
        return found;
    }

    private static void bodies(
        MessageStore store, String topic, int queue, Map<String, List<String>> bodies)
        throws Exception {
        List<String> found = new ArrayList<>();
        long at = store.getMinOffsetInQueue(topic, queue);
        while (at < store.getMaxOffsetInQueue(topic, queue)) {
            GetMessageResult page = store.getMessage("interop", topic, queue, at, 32, null);
            if (page == null || page.getMessageMapedList().isEmpty()) {
                throw new IllegalStateException(topic + " " + queue + " at " + at + ": " + page);
            }
            for (SelectMappedBufferResult each : page.getMessageMapedList()) {
                MessageExt message = MessageDecoder.decode(each.getByteBuffer(), true, false);
                found.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            at = page.getNextBeginOffset();
            page.release();
        }
        if (!found.isEmpty()) {
            bodies.put(topic + ":" + queue, found);
        }
    }
}
