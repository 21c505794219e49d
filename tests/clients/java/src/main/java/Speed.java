import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Measures RocketMQ's own client for Java: java Speed HOST:PORT. It takes a line of JSON for each
 * piece of work and answers one, as tests/benchmarks/client.py does with the client for Python.
 */
public final class Speed {
    private static final String[] TOPICS = {"one", "callers", "each", "batches"};
    private static final int MANY_IN_FLIGHT = 256;
    private static final int A_RECEIVE = 32;
    private static final long PROXY_BEGINS_NS = 90_000_000_000L;
    private static final long READ_NS = 120_000_000_000L;

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final byte[] body = new byte[1024];
    private final ClientConfiguration config;
    private final Producer producer;

    private Speed(String endpoint) throws Exception {
        new Random().nextBytes(body);
        config = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
        producer = triedAgain(() -> provider.newProducerBuilder().setClientConfiguration(config)
            .setTopics(TOPICS).build());
    }

    /** A proxy that says it is up may not have heard of the broker's topics yet. */
    private static <T> T triedAgain(Callable<T> call) throws Exception {
        long beganNs = System.nanoTime();
        while (true) {
            try {
                return call.call();
            } catch (ClientException | IllegalStateException error) {
                if (System.nanoTime() - beganNs > PROXY_BEGINS_NS) {
                    throw error;
                }
                Thread.sleep(50);
            }
        }
    }

    private Map<String, Object> answer(JsonObject given) throws Exception {
        switch (given.get("work").getAsString()) {
            case "java_send":
                return sendOneAtATime(seconds(given));
            case "java_send_many":
                return send("callers", seconds(given), Integer.MAX_VALUE);
            case "java_receive":
                int messages = given.get("messages").getAsInt();
                send("each", Double.MAX_VALUE, messages);
                return receive("each", messages, false);
            case "java_acknowledge":
                int count = given.get("count").getAsInt();
                send("batches", Double.MAX_VALUE, count);
                return receive("batches", count, true);
            default:
                throw new IllegalArgumentException(given.toString());
        }
    }

    private static double seconds(JsonObject given) {
        return given.get("limit_s").getAsDouble();
    }

    private Message message(String topic) {
        return provider.newMessageBuilder().setTopic(topic).setBody(body).build();
    }

    private Map<String, Object> sendOneAtATime(double limitS) throws ClientException {
        List<Long> calls = new ArrayList<>();
        long beganNs = System.nanoTime();
        long nowNs = beganNs;
        while ((nowNs - beganNs) / 1e9 < limitS) {
            producer.send(message("one"));
            long beforeNs = nowNs;
            nowNs = System.nanoTime();
            calls.add(nowNs - beforeNs);
        }
        Map<String, Object> timed = timed(calls.size(), beganNs);
        Collections.sort(calls);
        timed.put("p50_us", calls.get(calls.size() / 2) / 1e3);
        timed.put("p99_us", calls.get(calls.size() * 99 / 100) / 1e3);
        return timed;
    }

    private Map<String, Object> send(String topic, double limitS, int count) throws Exception {
        UnderWay sends = new UnderWay(MANY_IN_FLIGHT);
        int sent = 0;
        long beganNs = System.nanoTime();
        while (sent < count && (System.nanoTime() - beganNs) / 1e9 < limitS) {
            sends.begin();
            sends.endsWith(producer.sendAsync(message(topic)));
            sent++;
        }
        sends.finish();
        return timed(sent, beganNs);
    }

    private Map<String, Object> receive(String topic, int count, boolean acknowledge)
        throws Exception {
        try (SimpleConsumer consumer = triedAgain(() -> provider.newSimpleConsumerBuilder()
            .setClientConfiguration(config).setConsumerGroup("read-" + topic)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build())) {
            UnderWay acknowledged = new UnderWay(A_RECEIVE);
            int seen = 0;
            long beganNs = System.nanoTime();
            while (seen < count) {
                for (MessageView each : consumer.receive(A_RECEIVE, Duration.ofSeconds(60))) {
                    each.getBody();
                    if (acknowledge) {
                        acknowledged.begin();
                        acknowledged.endsWith(consumer.ackAsync(each));
                    }
                    seen++;
                }
                if (System.nanoTime() - beganNs > READ_NS) {
                    throw new IllegalStateException("only " + seen + " of " + count + " came");
                }
            }
            acknowledged.finish();
            return timed(seen, beganNs);
        }
    }

    private static Map<String, Object> timed(int count, long beganNs) {
        Map<String, Object> timed = new HashMap<>();
        timed.put("seconds", (System.nanoTime() - beganNs) / 1e9);
        timed.put("count", count);
        return timed;
    }

    /** Calls in flight: `begin` waits until there is room for one more, `finish` for all. */
    private static final class UnderWay {
        private final int most;
        private final Semaphore room;
        private volatile Throwable failure;

        UnderWay(int most) {
            this.most = most;
            room = new Semaphore(most);
        }

        void begin() throws InterruptedException {
            room.acquire();
            raise();
        }

        void endsWith(CompletableFuture<?> call) {
            call.whenComplete((done, error) -> {
                if (error != null) {
                    failure = error;
                }
                room.release();
            });
        }

        void finish() throws InterruptedException {
            room.acquire(most);
            raise();
        }

        private void raise() {
            if (failure != null) {
                throw new IllegalStateException(failure);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Speed speed = new Speed(arguments[0]);
        System.out.println("{}");
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Gson gson = new Gson();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer;
            try {
                answer = speed.answer(gson.fromJson(line, JsonObject.class));
            } catch (Exception error) {
                answer = Map.of("error", error.toString());
            }
            System.out.println(gson.toJson(answer));
        }
        speed.producer.close();
        System.exit(0);
    }
}
