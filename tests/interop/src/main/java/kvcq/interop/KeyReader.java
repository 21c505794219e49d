package kvcq.interop;

import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.SortedMap;
import java.util.SortedSet;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;

/** Queries by key. The original compares hashes only, so an answer may hold foreign messages. */
final class KeyReader {
    private static final int NO_LIMIT = 1_000_000;

    private final DefaultMessageStore store;

    KeyReader(DefaultMessageStore store) {
        this.store = store;
    }

    void write(JsonWriter json, SortedMap<String, SortedSet<String>> keys) throws IOException {
        json.name("key_queries").beginArray();
        int asked = 0;
        for (Map.Entry<String, SortedSet<String>> topic : keys.entrySet()) {
            for (String key : topic.getValue()) {
                // Unique ids are many and alike: one in five says enough.
                if (!key.startsWith("0A00") || asked++ % 5 == 0) {
                    query(json, topic.getKey(), key);
                }
            }
            query(json, topic.getKey(), "no-such-key");
        }
        json.endArray();
    }

    private void query(JsonWriter json, String topic, String key) throws IOException {
        QueryMessageResult result =
            store.queryMessage(topic, key, NO_LIMIT, 0, Long.MAX_VALUE);
        json.beginObject();
        json.name("topic").value(topic);
        json.name("key").value(key);
        json.name("physical_offsets").beginArray();
        for (ByteBuffer record : result.getMessageBufferList()) {
            json.value(record.getLong(28));
        }
        json.endArray();
        json.endObject();
        result.release();
    }
}
