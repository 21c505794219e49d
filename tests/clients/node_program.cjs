// A program that uses RocketMQ's own client for Node, and nothing of ours:
//   NODE_PATH=…/node_modules node node_program.cjs HOST:PORT [KEY SECRET [tls]]
// It takes a command a line, as JSON, and answers each with a line, as python_program.py does.
'use strict';

const readline = require('node:readline');
const {
  ConsumeResult, LitePushConsumerBuilder, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
// The client's own index does not have it.
const { TransactionResolution } =
  require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [ endpoints, accessKey, accessSecret, kind ] = process.argv.slice(2);
const sessionCredentials = accessKey ? { accessKey, accessSecret } : undefined;
const sslEnabled = kind === 'tls';
const logger = { debug() {}, info() {}, warn() {}, error() {} };
const say = answer => process.stdout.write(`ANSWER ${JSON.stringify(answer)}\n`);

const shown = message => ({
  body: message.body.toString(),
  id: message.messageId,
  tag: message.tag,
  keys: message.keys,
  group: message.messageGroup,
  lite: message.liteTopic,
  properties: Object.fromEntries(message.properties || []),
  attempt: message.deliveryAttempt,
});

// Tells what it is asked; what begins with `bad` was not done.
const checker = {
  async check(message) {
    const body = message.body.toString();
    say({ pushed: { checked: body }, failed: false });
    return body.startsWith('bad') ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
  },
};

const held = new Map();
const seen = new Set();
let producer, simple, push, lite;

const listener = {
  async consume(message) {
    const body = message.body.toString();
    const isNew = !seen.has(message.messageId);
    seen.add(message.messageId);
    const failed = body.startsWith('poison') || (body.startsWith('fail') && isNew);
    say({ pushed: shown(message), failed });
    return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
  },
};

const commands = {
  async producer({ topic }) {
    producer = new Producer({ endpoints, sslEnabled, sessionCredentials, topic, checker, logger });
    await producer.startup();
    return {};
  },
  async send({
    topic, bodies, tag, keys, message_group, delivery_timestamp, priority, properties, lite: liteTopic,
  }) {
    const receipts = [];
    for (const body of bodies) {
      receipts.push(await producer.send({
        topic, tag, priority, liteTopic, body: Buffer.from(body), messageGroup: message_group,
        keys: keys === undefined ? [] : [ keys ],
        deliveryTimestamp: delivery_timestamp === undefined ? undefined : new Date(delivery_timestamp * 1000),
        properties: properties === undefined ? undefined : new Map(Object.entries(properties)),
      }));
    }
    return { ids: receipts.map(each => each.messageId), handles: receipts.map(each => each.recallHandle) };
  },
  async recall({ topic, handle }) {
    return { id: (await producer.recallMessage(topic, handle)).messageId };
  },
  async half({ topic, body, resolution }) {
    const transaction = producer.beginTransaction();
    const receipt = await producer.send({ topic, body: Buffer.from(body) }, transaction);
    if (resolution) await transaction[resolution]();
    return { id: receipt.messageId };
  },
  async simple({ group, topic, tag = '*', wait_s = 5 }) {
    simple = new SimpleConsumer({
      endpoints, sslEnabled, sessionCredentials, logger, consumerGroup: group, awaitDuration: wait_s * 1000,
      subscriptions: new Map([[ topic, tag ]]),
    });
    await simple.startup();
    return {};
  },
  async receive({ count = 32, invisible_s = 30 }) {
    const messages = await simple.receive(count, invisible_s * 1000);
    messages.forEach(message => held.set(message.messageId, message));
    return { messages: messages.map(shown) };
  },
  async ack({ ids }) {
    for (const id of ids) await simple.ack(held.get(id));
    return {};
  },
  async change({ id, invisible_s }) {
    await simple.changeInvisibleDuration(held.get(id), invisible_s * 1000);
    return {};
  },
  async push({ group, topic }) {
    push = new PushConsumer({
      endpoints, sslEnabled, sessionCredentials, logger, consumerGroup: group, namespace: '',
      subscriptions: new Map([[ topic, '*' ]]),
      messageListener: listener,
    });
    await push.startup();
    return {};
  },
  async lite_push({ group, parent }) {
    lite = await new LitePushConsumerBuilder()
      .setClientConfiguration({ endpoints, sslEnabled, sessionCredentials, logger, namespace: '' })
      .setConsumerGroup(group).bindTopic(parent).setMessageListener(listener).build();
    return {};
  },
  async subscribe({ names }) {
    for (const name of names) await lite.subscribeLite(name);
    return {};
  },
  async unsubscribe({ lite: name }) {
    await lite.unsubscribeLite(name);
    return {};
  },
  async stop() {
    for (const each of [ producer, simple, push, lite ]) if (each) await each.shutdown();
    return {};
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [ name, given ] = JSON.parse(line);
    try {
      say({ done: name, ...await commands[name](given) });
    } catch (error) {
      say({ done: name, error: `${error.name}: ${error.message}` });
    }
  }
  process.exit(0);
}

main();
