package kvcq.interop.broker;

import java.nio.file.Path;

/**
 * The released broker as the judge of its own `config/`: writes it in each of its forms, and says
 * what it reads there.
 *
 * <pre>
 * write lmq|separate|single|v2 DIR    a new store in DIR
 * wait DIR    a new store in DIR, in which messages wait
 * deliver DIR SECONDS JSON    what came to their topic after that time, halves that are asked about
 * read  files|lmq|separate|single|v2 DIR JSON    topics, groups, offsets, messages it finds
 * </pre>
 *
 * Starting a broker changes its directory, so the caller hands `read` a copy.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Exception | LinkageError error) {
            error.printStackTrace();
            System.exit(1);
        }
        // The broker leaves threads running that are no daemons.
        System.exit(0);
    }

    private static void run(String[] args) throws Exception {
        if (args.length == 3 && args[0].equals("write")) {
            try (Broker broker = new Broker(args[1], Path.of(args[2]))) {
                Writer.write(broker);
            }
        } else if (args.length == 4 && args[0].equals("read")) {
            try (Broker broker = new Broker(args[1], Path.of(args[2]))) {
                Reader.read(broker, Path.of(args[3]));
            }
        } else if (args.length == 2 && args[0].equals("wait")) {
            try (Broker broker = new Broker("waiting", Path.of(args[1]))) {
                Waiting.write(broker);
            }
        } else if (args.length == 4 && args[0].equals("deliver")) {
            try (Broker broker = new Broker("waiting", Path.of(args[1]))) {
                Waiting.deliver(broker, Integer.parseInt(args[2]), Path.of(args[3]));
            }
        } else {
            System.err.println("usage: write FORM DIR | read FORM DIR JSON | wait DIR | deliver DIR SECONDS JSON");
            System.exit(2);
        }
    }
}
