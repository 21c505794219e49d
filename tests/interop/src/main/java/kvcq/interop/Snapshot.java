package kvcq.interop;

import com.google.gson.stream.JsonWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.SortedMap;

/** All that the original reads in a store, as one JSON document. */
final class Snapshot {
    private Snapshot() {
    }

    /** Writes `target`. Opens `root` as a store of `storeType`, which may change it. */
    static void write(String storeType, Path root, Path target) throws Exception {
        ForeignFamilies.drop(root.resolve("consumequeue"));
        try (OpenStore open = new OpenStore(Settings.of(root, storeType));
            Writer text = Files.newBufferedWriter(target);
            JsonWriter json = new JsonWriter(text)) {
            open.awaitDispatch();
            json.setIndent("");
            json.beginObject();
            json.name("store_type").value(storeType);
            json.name("log_start").value(open.store.getMinPhyOffset());
            json.name("log_end").value(open.store.getMaxPhyOffset());
            LogReader log = new LogReader(open.store);
            log.write(json);
            QueueReader queues = new QueueReader(open.store);
            json.name("queues").beginArray();
            for (Map.Entry<String, SortedMap<Integer, Long>> topic : log.queues().entrySet()) {
                for (int queueId : topic.getValue().keySet()) {
                    queues.write(json, topic.getKey(), queueId);
                }
            }
            json.endArray();
            new KeyReader(open.store).write(json, log.keys());
            json.endObject();
        }
    }
}
