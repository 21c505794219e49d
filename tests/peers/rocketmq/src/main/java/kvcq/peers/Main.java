package kvcq.peers;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Takes a line of JSON for each piece of work and answers one: see tests/benchmarks/client.py. */
public final class Main {
    private Main() {
    }

    /** Arguments: the name server, and how many light queues there may be. */
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        // Whatever a library prints may not stand between the answers.
        System.setOut(System.err);
        Client client = new Client(args[0], Integer.parseInt(args[1]));
        out.println("{}");
        out.flush();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(new Gson().toJson(answer(client, line)));
            out.flush();
        }
        client.close();
        System.exit(0);
    }

    private static Map<String, Object> answer(Client client, String line) {
        try {
            return run(client, JsonParser.parseString(line).getAsJsonObject());
        } catch (NotOfferedException error) {
            return Map.of("not_offered", error.getMessage());
        } catch (Exception error) {
            StringWriter text = new StringWriter();
            error.printStackTrace(new PrintWriter(text));
            return Map.of("error", text + "\n" + error);
        }
    }

    private static Map<String, Object> run(Client client, JsonObject request) throws Exception {
        String work = request.get("work").getAsString();
        switch (work) {
            case "put_one":
                return client.putByCallers("one", 1, seconds(request));
            case "put_by_callers":
                return client.putByCallers("callers", 64, seconds(request));
            case "put_each":
                return client.putEach(queue(request), count(request));
            case "put_batches":
                return client.putBatches(queue(request), count(request));
            case "read_back":
                return client.readBack(queue(request), count(request));
            case "pull":
                return client.pull(
                    queue(request), request.get("each").getAsInt(), count(request));
            case "new_queues":
                return client.newQueues(count(request), seconds(request));
            case "light_queues":
                return client.lightQueues(request.get("queues").getAsInt(),
                    request.get("each").getAsInt(), count(request), seconds(request));
            default:
                throw new IllegalArgumentException(line(request));
        }
    }

    private static String line(JsonObject request) {
        return "unknown work in " + request;
    }

    private static double seconds(JsonObject request) {
        return request.get("limit_s").getAsDouble();
    }

    private static int count(JsonObject request) {
        return request.get("count").getAsInt();
    }

    private static String queue(JsonObject request) {
        return request.get("queue").getAsString();
    }
}
