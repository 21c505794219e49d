package kvcq.interop;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Messages of all kinds from a seed: the same seed, the same messages, except for store times. */
final class Workload {
    /** Above 127 characters a record is of the second version. */
    private static final String LONG_TOPIC = "%RETRY%" + "long-group-name-".repeat(9);
    private static final String[] TOPICS = {
        "orders", "Orders", "payments", "a", "audit_log", "%RETRY%billing", "%DLQ%billing",
        "AaTopic", "BBTopic", LONG_TOPIC,
    };
    private static final String[] TAGS = {"", "created", "paid", "Aa", "BB", "order-created", "标签😀"};
    private static final String[] LIGHT = {
        "%LMQ%device-1", "%LMQ%device-2", "%LMQ%Aa", "%LMQ%BB", "%LMQ%" + "room".repeat(20),
    };
    private static final int SAME_HASH = 123_456_789;
    private static final long BORN_MS = 1_700_000_000_000L;

    private final Random random;
    private int made;

    Workload(long seed) {
        random = new Random(seed);
    }

    /** The next message, or a client's batch of messages. */
    MessageExtBrokerInner next() throws UnknownHostException {
        made++;
        switch (random.nextInt(20)) {
            case 0:
            case 1:
                return batch();
            case 2:
                return delayed();
            case 3:
                return oldTransaction();
            case 4:
            case 5:
            case 6:
                return light();
            default:
                return plain();
        }
    }

    /** A message to another topic and queue than its own, marked as a commit of `prepared`. */
    MessageExtBrokerInner committed(long prepared) throws UnknownHostException {
        MessageExtBrokerInner message = plain();
        message.setSysFlag(message.getSysFlag() | MessageSysFlag.TRANSACTION_COMMIT_TYPE);
        message.setPreparedTransactionOffset(prepared);
        return message;
    }

    /** The half message of a transaction, as the broker stores it: an ordinary one. */
    MessageExtBrokerInner half() throws UnknownHostException {
        MessageExtBrokerInner message = plain();
        put(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        put(message, MessageConst.PROPERTY_PRODUCER_GROUP, "billing");
        BrokerHooks.redirect(message, "RMQ_SYS_TRANS_HALF_TOPIC", 0);
        return message;
    }

    boolean nextIsTransaction() {
        return random.nextInt(25) == 0;
    }

    private MessageExtBrokerInner plain() throws UnknownHostException {
        MessageExtBrokerInner message = fill(new MessageExtBrokerInner());
        message.setBody(body());
        message.setFlag(random.nextInt(4) == 0 ? random.nextInt() : 0);
        if (random.nextInt(10) == 0) {
            message.setReconsumeTimes(1 + random.nextInt(16));
        }
        if (random.nextInt(12) == 0) {
            message.setSysFlag(MessageSysFlag.COMPRESSED_FLAG | MessageSysFlag.COMPRESSION_ZLIB_TYPE);
        }
        describe(message, message.getTopic());
        return message;
    }

    private MessageExtBrokerInner delayed() throws UnknownHostException {
        MessageExtBrokerInner message = plain();
        // Above 18 too: the broker lowers it to the highest level.
        message.setDelayTimeLevel(1 + random.nextInt(20));
        encode(message);
        return message;
    }

    /** Stored in no queue; only the prepared one is found by key. */
    private MessageExtBrokerInner oldTransaction() throws UnknownHostException {
        MessageExtBrokerInner message = plain();
        message.setSysFlag(message.getSysFlag() | (random.nextBoolean()
            ? MessageSysFlag.TRANSACTION_PREPARED_TYPE : MessageSysFlag.TRANSACTION_ROLLBACK_TYPE));
        return message;
    }

    private MessageExtBrokerInner light() throws UnknownHostException {
        MessageExtBrokerInner message = plain();
        if (message.getTopic().startsWith("%")) {
            message.setTopic("payments"); // retry topics carry no light queues
        }
        List<String> names = new ArrayList<>();
        for (String name : LIGHT) {
            if (random.nextInt(3) == 0) {
                names.add(name);
            }
        }
        if (!names.isEmpty()) {
            put(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, String.join(",", names));
        }
        return message;
    }

    private MessageExtBatch batch() throws UnknownHostException {
        MessageExtBatch batch = fill(new MessageExtBatch());
        List<Message> parts = new ArrayList<>();
        for (int i = 1 + random.nextInt(8); i > 0; i--) {
            Message part = new Message(batch.getTopic(), body());
            part.setFlag(random.nextInt(100));
            describe(part, batch.getTopic());
            parts.add(part);
        }
        batch.setBody(MessageDecoder.encodeMessages(parts));
        return batch;
    }

    private <T extends MessageExtBrokerInner> T fill(T message) throws UnknownHostException {
        message.setTopic(TOPICS[random.nextInt(TOPICS.length)]);
        message.setQueueId(random.nextInt(4));
        message.setBornTimestamp(BORN_MS + made * 1000L + random.nextInt(1000));
        message.setBornHost(host(random.nextInt(5) == 0));
        message.setStoreHost(host(random.nextInt(8) == 0));
        return message;
    }

    private InetSocketAddress host(boolean six) throws UnknownHostException {
        byte[] address = new byte[six ? 16 : 4];
        random.nextBytes(address);
        address[0] = (byte) (six ? 0xfd : 10); // a private network of either kind
        return new InetSocketAddress(InetAddress.getByAddress(address), random.nextInt(65_536));
    }

    private byte[] body() {
        int words = random.nextInt(30) == 0 ? random.nextInt(3000) : random.nextInt(60);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < words; i++) {
            text.append("w").append(random.nextInt(50)).append(i % 7 == 6 ? "\n" : " ");
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Tags, keys, and properties of the application's own. */
    private void describe(Message message, String topic) {
        String tag = TAGS[random.nextInt(TAGS.length)];
        if (!tag.isEmpty()) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_TAGS, tag);
        }
        if (random.nextInt(6) != 0) {
            String id = String.format("0A0000010D2A%08X%08X%04X", 7, made, random.nextInt(65_536));
            MessageAccessor.putProperty(
                message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, id);
        }
        String keys = keys(topic);
        if (!keys.isEmpty()) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_KEYS, keys);
        }
        if (random.nextBoolean()) {
            MessageAccessor.putProperty(message, "colour", "grün=\u0001" + random.nextInt(9));
            MessageAccessor.putProperty(message, "n", String.valueOf(made));
        }
        if (message instanceof MessageExtBrokerInner) {
            encode((MessageExtBrokerInner) message);
        }
    }

    private String keys(String topic) {
        switch (random.nextInt(8)) {
            case 0:
                return "";
            case 1:
                return random.nextBoolean() ? "Aa" : "BB";
            case 2:
                // Different texts of one hash, with the topic before them.
                return random.nextBoolean() ? "AaAa BBBB" : "AaBB  BBAa";
            case 3:
                String prefix = "hash-" + random.nextInt(3) + "-";
                return prefix + Hashes.suffixFor(topic + "#" + prefix, SAME_HASH);
            case 4:
                // abs() of this hash is negative: the original takes 0 instead.
                return Hashes.suffixFor(topic + "#", Integer.MIN_VALUE);
            case 5:
                return "key-" + random.nextInt(40) + " ключ-" + random.nextInt(5) + " 😀";
            default:
                return "key-" + random.nextInt(40);
        }
    }

    private static void put(MessageExtBrokerInner message, String name, String value) {
        MessageAccessor.putProperty(message, name, value);
        encode(message);
    }

    private static void encode(MessageExtBrokerInner message) {
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
    }
}
