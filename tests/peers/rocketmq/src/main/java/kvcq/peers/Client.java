package kvcq.peers;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.StringJoiner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import kvcq.peers.Timing.UnderWay;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client over its own protocol. Bodies have 1 KiB; a topic's queue 0 is used.
 *
 * <p>The broker answers a send before the queue has the message, and makes the queues behind it, so
 * work on many messages ends when the last of them can be pulled, as it can in the other systems
 * when the send is answered.
 */
final class Client {
    private static final String BROKER = "bench";
    private static final int BATCH = 128;
    private static final int BATCHES_AT_ONCE = 8;
    private static final int SINGLE_AT_ONCE = 512;
    private static final int READ = 512;
    private static final int MOST_CALLS = 1 << 20;

    private final String nameServer;
    private final int mostLightQueues;
    private final byte[] body = new byte[1024];
    private final DefaultMQProducer producer = new DefaultMQProducer("bench");
    private final DefaultMQProducer batching = new DefaultMQProducer("bench-each");
    private final DefaultMQPullConsumer puller = new DefaultMQPullConsumer("bench-pull");
    private final Set<String> topics = new HashSet<>();
    private int readers;

    Client(String nameServer, int mostLightQueues) throws MQClientException {
        this.nameServer = nameServer;
        this.mostLightQueues = mostLightQueues;
        new Random(1).nextBytes(body);
        for (DefaultMQProducer each : List.of(producer, batching)) {
            each.setNamesrvAddr(nameServer);
            each.setSendMsgTimeout(60_000);
            each.setCompressMsgBodyOverHowmuch(1 << 30);
            each.setInstanceName(each.getProducerGroup());
        }
        batching.setAutoBatch(true);
        batching.batchMaxBytes(BATCH * 1024);
        producer.start();
        batching.start();
        puller.setNamesrvAddr(nameServer);
        puller.start();
    }

    private MessageQueue queue(String topic) throws Exception {
        if (topics.add(topic)) {
            long end = System.nanoTime() + 60_000_000_000L;
            while (true) {
                try {
                    producer.createTopic("TBW102", topic, 4, Collections.emptyMap());
                    break;
                } catch (MQClientException error) {
                    // The broker has not told the name server of itself yet.
                    if (System.nanoTime() > end) {
                        throw error;
                    }
                    Thread.sleep(50);
                }
            }
        }
        return new MessageQueue(topic, BROKER, 0);
    }

    Map<String, Object> putByCallers(String topic, int callers, double seconds) throws Exception {
        MessageQueue queue = queue(topic);
        ExecutorService threads = Executors.newFixedThreadPool(callers);
        try {
            long began = System.nanoTime();
            long end = began + (long) (seconds * 1e9);
            List<Future<long[]>> all = new ArrayList<>();
            for (int caller = 0; caller < callers; caller++) {
                all.add(threads.submit(() -> calls(queue, end, MOST_CALLS / callers)));
            }
            long[] calls = new long[MOST_CALLS];
            int made = 0;
            for (Future<long[]> each : all) {
                for (long nanoseconds : each.get()) {
                    calls[made++] = nanoseconds;
                }
            }
            return Timing.ofCalls(calls, made, made, System.nanoTime() - began);
        } finally {
            threads.shutdown();
        }
    }

    private long[] calls(MessageQueue queue, long end, int most) throws Exception {
        long[] calls = new long[most];
        int made = 0;
        long now = System.nanoTime();
        while (now < end && made < most) {
            Timing.check(producer.send(new Message(queue.getTopic(), body), queue));
            long before = now;
            now = System.nanoTime();
            calls[made++] = now - before;
        }
        return java.util.Arrays.copyOf(calls, made);
    }

    Map<String, Object> putEach(String topic, int count) throws Exception {
        MessageQueue queue = queue(topic);
        UnderWay sends = new UnderWay(BATCHES_AT_ONCE * BATCH);
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
            batching.send(new Message(topic, body), queue, sends.begin(1));
        }
        int sent = sends.finish();
        visible(queue, sends.lastOffset());
        return Timing.of(sent, System.nanoTime() - began);
    }

    Map<String, Object> putBatches(String topic, int count) throws Exception {
        MessageQueue queue = queue(topic);
        UnderWay sends = new UnderWay(BATCHES_AT_ONCE);
        long began = System.nanoTime();
        for (int first = 0; first < count; first += BATCH) {
            List<Message> batch = new ArrayList<>(BATCH);
            for (int number = first; number < Math.min(count, first + BATCH); number++) {
                batch.add(new Message(topic, body));
            }
            producer.send(batch, queue, sends.begin(batch.size()));
        }
        int sent = sends.finish();
        visible(queue, sends.lastOffset());
        return Timing.of(sent, System.nanoTime() - began);
    }

    Map<String, Object> readBack(String topic, int count) throws Exception {
        MessageQueue queue = queue(topic);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-read-" + readers++);
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(READ);
        consumer.start();
        try {
            long began = System.nanoTime();
            consumer.assign(List.of(queue));
            consumer.seek(queue, 0);
            int seen = 0;
            long bytes = 0;
            while (seen < count) {
                List<MessageExt> messages = consumer.poll(30_000);
                if (messages.isEmpty()) {
                    throw new IllegalStateException(seen + " messages, not " + count);
                }
                for (MessageExt message : messages) {
                    bytes += message.getBody().length;
                }
                seen += messages.size();
            }
            long took = System.nanoTime() - began;
            if (bytes != (long) seen * body.length) {
                throw new IllegalStateException(bytes + " bytes in " + seen + " messages");
            }
            return Timing.of(seen, took);
        } finally {
            consumer.shutdown();
        }
    }

    Map<String, Object> pull(String topic, int each, int count) throws Exception {
        MessageQueue queue = queue(topic);
        long[] calls = new long[MOST_CALLS];
        int made = 0;
        long at = 0;
        long began = System.nanoTime();
        long now = began;
        while (at + each <= count) {
            PullResult result = puller.pull(queue, "*", at, each);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(result + " at " + at + " of " + count);
            }
            at = result.getNextBeginOffset();
            long before = now;
            now = System.nanoTime();
            calls[made++] = now - before;
        }
        return Timing.ofCalls(calls, made, at, now - began);
    }

    /** A light queue each: a topic of its own is far dearer, and not made for such numbers. */
    Map<String, Object> newQueues(int count, double seconds) throws Exception {
        return light("queue", Math.min(count, mostLightQueues), 1,
            Math.min(count, mostLightQueues), seconds);
    }

    Map<String, Object> lightQueues(int queues, int each, int count, double seconds)
        throws Exception {
        if (queues > mostLightQueues) {
            throw new NotOfferedException(
                "each light queue is a directory with an open file: " + mostLightQueues
                    + " at most");
        }
        return light("light", queues, each, count, seconds);
    }

    private Map<String, Object> light(
        String prefix, int queues, int each, int count, double seconds) throws Exception {
        MessageQueue queue = queue("light");
        UnderWay sends = new UnderWay(SINGLE_AT_ONCE);
        long began = System.nanoTime();
        long end = began + (long) (seconds * 1e9);
        int next = 0;
        for (int number = 0; number < count && System.nanoTime() < end; number++) {
            StringJoiner names = new StringJoiner(",");
            for (int unit = 0; unit < each; unit++) {
                names.add(lightQueue(prefix, next++ % queues));
            }
            Message message = new Message(queue.getTopic(), body);
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", names.toString());
            producer.send(message, queue, sends.begin(each));
        }
        int units = sends.finish();
        // Each of the queues has had one unit before any of them has two.
        MessageQueue last = new MessageQueue(lightQueue(prefix, (next - 1) % queues), BROKER, 0);
        visible(last, (next - 1) / queues);
        return Timing.of(units, System.nanoTime() - began);
    }

    private static String lightQueue(String prefix, int number) {
        return String.format("%%LMQ%%%s-%07d", prefix, number);
    }

    private void visible(MessageQueue queue, long offset) throws Exception {
        long end = System.nanoTime() + 120_000_000_000L;
        while (puller.pull(queue, "*", offset, 1).getPullStatus() != PullStatus.FOUND) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("no message at " + offset + " of " + queue);
            }
            Thread.sleep(1);
        }
    }

    void close() {
        producer.shutdown();
        batching.shutdown();
        puller.shutdown();
    }
}
