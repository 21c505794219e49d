package kvcq.interop;

import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Map;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Walks the log record by record, and notes which queues and keys it speaks of. */
final class LogReader {
    private final DefaultMessageStore store;
    private final SortedMap<String, SortedMap<Integer, Long>> queues = new TreeMap<>();
    private final SortedMap<String, SortedSet<String>> keys = new TreeMap<>();

    LogReader(DefaultMessageStore store) {
        this.store = store;
    }

    /** Topic, queue id, number of records that name it: light queues too. */
    SortedMap<String, SortedMap<Integer, Long>> queues() {
        return queues;
    }

    /** Topic and the keys of its records. */
    SortedMap<String, SortedSet<String>> keys() {
        return keys;
    }

    void write(JsonWriter json) throws Exception {
        TreeMap<Long, Integer> blanks = new TreeMap<>();
        json.name("records").beginArray();
        long end = store.getMaxPhyOffset();
        long offset = store.getMinPhyOffset();
        while (offset < end) {
            MessageExt message = store.lookMessageByOffset(offset);
            if (message == null) {
                blanks.put(offset, sizeAt(offset));
                offset = store.getCommitLog().rollNextFile(offset);
                continue;
            }
            verify(offset, message.getStoreSize());
            note(message);
            write(json, message);
            offset += message.getStoreSize();
        }
        json.endArray();
        json.name("blanks").beginArray();
        for (Map.Entry<Long, Integer> blank : blanks.entrySet()) {
            json.beginArray().value(blank.getKey()).value(blank.getValue()).endArray();
        }
        json.endArray();
    }

    /** By the check that recovery makes: body CRC, or the CRC item where settings ask for it. */
    private void verify(long offset, int size) {
        SelectMappedBufferResult bytes = store.getCommitLog().getMessage(offset, size);
        try {
            DispatchRequest checked = store.getCommitLog()
                .checkMessageAndReturnSize(bytes.getByteBuffer(), true, false);
            if (!checked.isSuccess() || checked.getMsgSize() != size) {
                throw new IllegalStateException("the original refuses the record at " + offset);
            }
        } finally {
            bytes.release();
        }
    }

    private int sizeAt(long offset) {
        SelectMappedBufferResult bytes = store.getCommitLog().getMessage(offset, 4);
        try {
            return bytes.getByteBuffer().getInt();
        } finally {
            bytes.release();
        }
    }

    private void note(MessageExt message) {
        count(message.getTopic(), message.getQueueId());
        String light = message.getProperty(MessageConst.PROPERTY_INNER_MULTI_DISPATCH);
        if (light != null) {
            for (String name : light.split(",")) {
                count(name, 0);
            }
        }
        SortedSet<String> ofTopic = keys.computeIfAbsent(message.getTopic(), t -> new TreeSet<>());
        String id = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (id != null) {
            ofTopic.add(id);
        }
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                if (!key.isEmpty()) {
                    ofTopic.add(key);
                }
            }
        }
    }

    private void count(String topic, int queueId) {
        queues.computeIfAbsent(topic, t -> new TreeMap<>()).merge(queueId, 1L, Long::sum);
    }

    private static void write(JsonWriter json, MessageExt message) throws IOException {
        json.beginObject();
        json.name("topic").value(message.getTopic());
        json.name("queue_id").value(message.getQueueId());
        json.name("queue_offset").value(message.getQueueOffset());
        json.name("physical_offset").value(message.getCommitLogOffset());
        json.name("record_size").value(message.getStoreSize());
        json.name("flag").value(message.getFlag());
        json.name("sys_flag").value(message.getSysFlag());
        json.name("born_time_ms").value(message.getBornTimestamp());
        host(json.name("born_host"), (InetSocketAddress) message.getBornHost());
        json.name("store_time_ms").value(message.getStoreTimestamp());
        host(json.name("store_host"), (InetSocketAddress) message.getStoreHost());
        json.name("reconsume_times").value(message.getReconsumeTimes());
        json.name("prepared_transaction_offset").value(message.getPreparedTransactionOffset());
        json.name("body_crc").value(message.getBodyCRC());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        json.name("body_size").value(body.length);
        json.name("body_sha256").value(sha256(body));
        json.name("message_id").value(message.getMsgId());
        json.name("properties").beginObject();
        for (Map.Entry<String, String> item : new TreeMap<>(message.getProperties()).entrySet()) {
            json.name(item.getKey()).value(item.getValue());
        }
        json.endObject();
        json.endObject();
    }

    /** The bytes of the address, because its text has several forms. */
    private static void host(JsonWriter json, InetSocketAddress host) throws IOException {
        json.beginArray();
        json.value(UtilAll.bytes2string(host.getAddress().getAddress()));
        json.value(host.getPort());
        json.endArray();
    }

    private static String sha256(byte[] body) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            return UtilAll.bytes2string(digest).toLowerCase(java.util.Locale.ROOT);
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error); // every Java has it
        }
    }
}
