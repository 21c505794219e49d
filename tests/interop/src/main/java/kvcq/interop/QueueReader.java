package kvcq.interop;

import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.Pair;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;

/** One queue through the original: bounds, units, what a consumer gets, and searches by time. */
final class QueueReader {
    /** Enough to meet every row of the boundary table, few enough to keep the answer small. */
    private static final int TIMES_A_QUEUE = 24;

    private final DefaultMessageStore store;

    QueueReader(DefaultMessageStore store) {
        this.store = store;
    }

    void write(JsonWriter json, String topic, int queueId) throws Exception {
        ConsumeQueueInterface queue = store.getConsumeQueue(topic, queueId);
        long min = queue == null ? 0 : queue.getMinOffsetInQueue();
        long max = queue == null ? 0 : queue.getMaxOffsetInQueue();
        json.beginObject();
        json.name("topic").value(topic);
        json.name("queue_id").value(queueId);
        json.name("min").value(min);
        json.name("max").value(max);
        TreeSet<Long> times = new TreeSet<>();
        json.name("units").beginArray();
        for (long offset = min; offset < max; offset++) {
            Pair<CqUnit, Long> unit = queue.getCqUnitAndStoreTime(offset);
            if (unit == null || unit.getObject1() == null) {
                continue; // the offsets that follow show the hole
            }
            times.add(unit.getObject2());
            unit(json, unit.getObject1(), unit.getObject2());
        }
        json.endArray();
        pulled(json, topic, queueId, min, max);
        searches(json, topic, queueId, times);
        json.endObject();
    }

    private static void unit(JsonWriter json, CqUnit unit, long storeTime) throws IOException {
        json.beginArray();
        json.value(unit.getQueueOffset());
        json.value(unit.getPos());
        json.value(unit.getSize());
        json.value(unit.getTagsCode());
        json.value(storeTime);
        json.endArray();
    }

    /** Physical offsets of the records that a consumer gets who reads from min to max. */
    private void pulled(JsonWriter json, String topic, int queueId, long min, long max)
        throws IOException {
        json.name("pulled").beginArray();
        long offset = min;
        while (offset < max) {
            GetMessageResult result = store.getMessage("interop", topic, queueId, offset, 32, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                for (SelectMappedBufferResult record : result.getMessageMapedList()) {
                    json.value(record.getByteBuffer().getLong(28));
                }
            }
            result.release();
            if (result.getNextBeginOffset() <= offset) {
                break; // what is missing shows in the comparison
            }
            offset = result.getNextBeginOffset();
        }
        json.endArray();
    }

    private void searches(JsonWriter json, String topic, int queueId, TreeSet<Long> stored)
        throws IOException {
        json.name("searches").beginArray();
        List<Long> all = new ArrayList<>(stored);
        TreeSet<Long> times = new TreeSet<>();
        if (!all.isEmpty()) {
            int step = Math.max(1, all.size() / TIMES_A_QUEUE);
            for (int i = 0; i < all.size(); i += step) {
                times.add(all.get(i) - 1);
                times.add(all.get(i));
            }
            times.add(all.get(all.size() - 1));
            times.add(all.get(all.size() - 1) + 1);
        }
        for (long time : times) {
            json.beginArray();
            json.value(time);
            json.value(store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.LOWER));
            json.value(store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.UPPER));
            json.endArray();
        }
        json.endArray();
    }
}
