import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * A program that uses RocketMQ's own client for Java, and nothing of ours: java JavaProgram HOST:PORT [KEY SECRET [tls]].
 * It takes a command a line, as JSON, and answers each with a line, as python_program.py does.
 */
public final class JavaProgram {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    /** In UTF-8, whatever the environment says. */
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private static final Set<String> SEEN = ConcurrentHashMap.newKeySet();

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, MessageView> held = new HashMap<>();
    private final ClientConfiguration config;
    private Producer producer;
    private SimpleConsumer simple;
    private PushConsumer push;
    private Lite lite;

    private JavaProgram(String... arguments) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]);
        if (arguments.length < 4) {
            builder.enableSsl(false); // before 5.0.8 there is only TLS
        }
        if (arguments.length > 1 && !arguments[1].isEmpty()) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(arguments[1], arguments[2]));
        }
        config = builder.build();
    }

    /** A client that does not start says why only in the cause. */
    private static String withCauses(Throwable error) {
        String cause = error.getCause() == null ? "" : ", because of " + withCauses(error.getCause());
        return error + cause;
    }

    private static synchronized void say(Map<String, Object> answer) {
        OUT.println("ANSWER " + GSON.toJson(answer));
    }

    private static String text(ByteBuffer body) {
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    private static Map<String, Object> shown(MessageView message) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("body", text(message.getBody()));
        shown.put("id", message.getMessageId().toString());
        shown.put("tag", message.getTag().orElse(null));
        shown.put("keys", message.getKeys());
        shown.put("group", message.getMessageGroup().orElse(null));
        shown.put("properties", message.getProperties());
        shown.put("attempt", message.getDeliveryAttempt());
        return shown;
    }

    private Map<String, FilterExpression> subscription(JsonObject given) {
        String tag = given.has("tag") ? given.get("tag").getAsString() : "*";
        FilterExpression expression = new FilterExpression(tag, FilterExpressionType.TAG);
        return Collections.singletonMap(given.get("topic").getAsString(), expression);
    }

    private Map<String, Object> answer(String name, JsonObject given) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        switch (name) {
            case "producer":
                producer = provider.newProducerBuilder().setClientConfiguration(config)
                    .setTransactionChecker(JavaProgram::check)
                    .setTopics(given.get("topic").getAsString()).build();
                break;
            case "send":
                List<String> ids = new ArrayList<>();
                List<String> handles = new ArrayList<>();
                for (JsonElement body : given.getAsJsonArray("bodies")) {
                    SendReceipt receipt = producer.send(message(given, body.getAsString()));
                    ids.add(receipt.getMessageId().toString());
                    if (given.has("delivery_timestamp")) {
                        handles.add(receipt.getRecallHandle());
                    }
                }
                answer.put("ids", ids);
                answer.put("handles", handles);
                break;
            case "recall":
                answer.put("id", producer.recallMessage(given.get("topic").getAsString(),
                    given.get("handle").getAsString()).getMessageId().toString());
                break;
            case "half":
                Transaction transaction = producer.beginTransaction();
                SendReceipt half =
                    producer.send(message(given, given.get("body").getAsString()), transaction);
                answer.put("id", half.getMessageId().toString());
                String resolution = given.has("resolution") ? given.get("resolution").getAsString() : "";
                if (resolution.equals("commit")) {
                    transaction.commit();
                } else if (resolution.equals("rollback")) {
                    transaction.rollback();
                }
                break;
            case "simple":
                simple = provider.newSimpleConsumerBuilder().setClientConfiguration(config)
                    .setConsumerGroup(given.get("group").getAsString())
                    .setAwaitDuration(Duration.ofSeconds(5))
                    .setSubscriptionExpressions(subscription(given)).build();
                break;
            case "receive":
                List<Object> messages = new ArrayList<>();
                for (MessageView each : simple.receive(32, Duration.ofSeconds(30))) {
                    held.put(each.getMessageId().toString(), each);
                    messages.add(shown(each));
                }
                answer.put("messages", messages);
                break;
            case "ack":
                for (JsonElement id : given.getAsJsonArray("ids")) {
                    simple.ack(held.get(id.getAsString()));
                }
                break;
            case "change":
                simple.changeInvisibleDuration(held.get(given.get("id").getAsString()),
                    Duration.ofSeconds(given.get("invisible_s").getAsLong()));
                break;
            case "push":
                push = provider.newPushConsumerBuilder().setClientConfiguration(config)
                    .setConsumerGroup(given.get("group").getAsString())
                    .setSubscriptionExpressions(subscription(given))
                    .setMessageListener(JavaProgram::consume).build();
                break;
            case "lite_push":
                lite = new Lite(given);
                break;
            case "subscribe":
                lite.subscribe(given);
                break;
            case "unsubscribe":
                lite.consumer.unsubscribeLite(given.get("lite").getAsString());
                break;
            case "stop":
                AutoCloseable ofLite = lite == null ? null : lite.consumer;
                for (AutoCloseable each : new AutoCloseable[] {producer, simple, push, ofLite}) {
                    if (each != null) {
                        each.close();
                    }
                }
                break;
            default:
                throw new IllegalArgumentException(name);
        }
        return answer;
    }

    private org.apache.rocketmq.client.apis.message.Message message(JsonObject given, String body) {
        MessageBuilder builder = provider.newMessageBuilder()
            .setTopic(given.get("topic").getAsString())
            .setBody(body.getBytes(StandardCharsets.UTF_8));
        if (given.has("tag")) {
            builder.setTag(given.get("tag").getAsString());
        }
        if (given.has("keys")) {
            builder.setKeys(given.get("keys").getAsString());
        }
        if (given.has("message_group")) {
            builder.setMessageGroup(given.get("message_group").getAsString());
        }
        if (given.has("delivery_timestamp")) {
            builder.setDeliveryTimestamp(given.get("delivery_timestamp").getAsLong() * 1000);
        }
        if (given.has("priority")) {
            builder.setPriority(given.get("priority").getAsInt());
        }
        if (given.has("lite")) {
            builder.setLiteTopic(given.get("lite").getAsString());
        }
        if (given.has("properties")) {
            given.getAsJsonObject("properties").entrySet()
                .forEach(each -> builder.addProperty(each.getKey(), each.getValue().getAsString()));
        }
        return builder.build();
    }

    /** A consumer of lite topics. A class of its own: older releases have none. */
    private final class Lite {
        private final LitePushConsumer consumer;

        private Lite(JsonObject given) throws Exception {
            consumer = provider.newLitePushConsumerBuilder().setClientConfiguration(config)
                .setConsumerGroup(given.get("group").getAsString())
                .bindTopic(given.get("parent").getAsString())
                .setMessageListener(message -> {
                    Map<String, Object> shown = shown(message);
                    shown.put("lite", message.getLiteTopic().orElse(null));
                    return consume(message, shown);
                }).build();
        }

        private void subscribe(JsonObject given) throws Exception {
            for (JsonElement name : given.getAsJsonArray("names")) {
                consumer.subscribeLite(name.getAsString());
            }
        }
    }

    /** Tells what it is asked; what begins with "bad" was not done. */
    private static TransactionResolution check(MessageView message) {
        String body = text(message.getBody());
        Map<String, Object> asked = new LinkedHashMap<>();
        asked.put("pushed", Collections.singletonMap("checked", body));
        asked.put("failed", false);
        say(asked);
        return body.startsWith("bad") ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
    }

    private static ConsumeResult consume(MessageView message) {
        return consume(message, shown(message));
    }

    private static ConsumeResult consume(MessageView message, Map<String, Object> shown) {
        String body = text(message.getBody());
        boolean isNew = SEEN.add(message.getMessageId().toString());
        boolean failed = body.startsWith("poison") || body.startsWith("fail") && isNew;
        Map<String, Object> pushed = new LinkedHashMap<>();
        pushed.put("pushed", shown);
        pushed.put("failed", failed);
        say(pushed);
        return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    public static void main(String[] arguments) throws Exception {
        JavaProgram program = new JavaProgram(arguments);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonArray command = GSON.fromJson(line, JsonArray.class);
            String name = command.get(0).getAsString();
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("done", name);
            try {
                answer.putAll(program.answer(name, command.get(1).getAsJsonObject()));
            } catch (Exception | LinkageError error) { // an older release has less
                answer.put("error", withCauses(error));
            }
            say(answer);
        }
        System.exit(0);
    }
}
