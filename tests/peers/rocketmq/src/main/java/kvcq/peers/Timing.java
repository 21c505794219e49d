package kvcq.peers;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/** How answers are made, and how sends that are under way at once are bounded and counted. */
final class Timing {
    private Timing() {
    }

    static Map<String, Object> of(long count, long nanoseconds) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("count", count);
        answer.put("seconds", nanoseconds / 1e9);
        return answer;
    }

    /** Of single calls; `calls` holds the nanoseconds of each in its first `made` places. */
    static Map<String, Object> ofCalls(long[] calls, int made, long count, long nanoseconds) {
        Map<String, Object> answer = of(count, nanoseconds);
        if (made > 0) {
            long[] ordered = Arrays.copyOf(calls, made);
            Arrays.sort(ordered);
            answer.put("p50_us", ordered[(int) (made * 0.5)] / 1e3);
            answer.put("p99_us", ordered[Math.min(made - 1, (int) (made * 0.99))] / 1e3);
        }
        return answer;
    }

    static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    /** Sends that are under way: `begin` waits for room, `finish` for all, and raises. */
    static final class UnderWay {
        private final int most;
        private final Semaphore room;
        private final AtomicInteger done = new AtomicInteger();
        private final AtomicLong lastOffset = new AtomicLong(-1);
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        UnderWay(int most) {
            this.most = most;
            room = new Semaphore(most);
        }

        SendCallback begin(int messages) throws InterruptedException {
            room.acquire();
            raise();
            return new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    try {
                        check(result);
                        done.addAndGet(messages);
                        lastOffset.accumulateAndGet(
                            result.getQueueOffset() + messages - 1, Math::max);
                    } catch (IllegalStateException error) {
                        failure.compareAndSet(null, error);
                    }
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    failure.compareAndSet(null, error);
                    room.release();
                }
            };
        }

        int finish() throws InterruptedException {
            room.acquire(most);
            raise();
            return done.get();
        }

        /** Of sends to one queue; a batch tells the offset of its first message. */
        long lastOffset() {
            return lastOffset.get();
        }

        private void raise() {
            Throwable error = failure.get();
            if (error != null) {
                throw new IllegalStateException("a message was not stored", error);
            }
        }
    }
}
