//! A program that uses RocketMQ's own client for Rust, and nothing of ours: program HOST:PORT [KEY SECRET [tls]].
//! It takes a command a line, as JSON, and answers each with a line, as python_program.py does.

use std::collections::HashMap;
use std::error::Error;
use std::io::{stdin, BufRead};
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Answer = Result<Value, Box<dyn Error>>;

fn say(answer: Value) {
    println!("ANSWER {answer}");
}

fn text(given: &Value, name: &str) -> String {
    given[name].as_str().unwrap_or_default().to_string()
}

fn texts(given: &Value, name: &str) -> Vec<String> {
    let all = given[name].as_array().into_iter().flatten();
    all.filter_map(|each| each.as_str().map(str::to_string))
        .collect()
}

fn shown(message: &MessageView) -> Value {
    json!({
        "body": String::from_utf8_lossy(message.body()),
        "id": message.message_id(),
        "tag": message.tag(),
        "keys": message.keys(),
        "group": message.message_group(),
        "properties": message.properties(),
        "attempt": message.delivery_attempt(),
    })
}

/// Tells what it is asked; what begins with `bad` was not done.
fn check(_transaction_id: String, message: MessageView) -> TransactionResolution {
    let body = String::from_utf8_lossy(message.body()).to_string();
    say(json!({"pushed": {"checked": body}, "failed": false}));
    if body.starts_with("bad") {
        TransactionResolution::ROLLBACK
    } else {
        TransactionResolution::COMMIT
    }
}

#[derive(Default)]
struct Program {
    arguments: Vec<String>,
    producer: Option<Producer>,
    simple: Option<SimpleConsumer>,
    topic: String,
    held: HashMap<String, MessageView>,
}

impl Program {
    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(&self.arguments[0]);
        option.set_enable_tls(self.arguments.len() > 3);
        option.set_long_polling_timeout(Duration::from_secs(5));
        if self.arguments.len() > 1 {
            option.set_access_key(&self.arguments[1]);
            option.set_secret_key(&self.arguments[2]);
        }
        option
    }

    async fn answer(&mut self, name: &str, given: &Value) -> Answer {
        match name {
            "producer" => {
                let mut option = ProducerOption::default();
                option.set_topics(vec![text(given, "topic")]);
                let check = Box::new(check);
                let mut producer =
                    Producer::new_transaction_producer(option, self.client(), check)?;
                producer.start().await?;
                self.producer = Some(producer);
            }
            "send" => return self.send(given).await,
            "half" => return self.half(given).await,
            "simple" => {
                let mut option = SimpleConsumerOption::default();
                self.topic = text(given, "topic");
                option.set_topics(vec![self.topic.clone()]);
                option.set_consumer_group(text(given, "group"));
                let mut simple = SimpleConsumer::new(option, self.client())?;
                simple.start().await?;
                self.simple = Some(simple);
            }
            "receive" => {
                let all = FilterExpression::new(FilterType::Tag, "*");
                let simple = self.simple.as_ref().ok_or("no consumer")?;
                let messages = simple
                    .receive_with(&self.topic, &all, 32, Duration::from_secs(30))
                    .await?;
                let found: Vec<Value> = messages.iter().map(shown).collect();
                for each in messages {
                    self.held.insert(each.message_id().to_string(), each);
                }
                return Ok(json!({ "messages": found }));
            }
            "ack" => {
                let simple = self.simple.as_ref().ok_or("no consumer")?;
                for id in texts(given, "ids") {
                    simple.ack(&self.held[&id]).await?;
                }
            }
            "stop" => {
                if let Some(producer) = self.producer.take() {
                    producer.shutdown().await?;
                }
                if let Some(simple) = self.simple.take() {
                    simple.shutdown().await?;
                }
            }
            _ => return Err(format!("unknown: {name}").into()),
        }
        Ok(json!({}))
    }

    async fn send(&self, given: &Value) -> Answer {
        let producer = self.producer.as_ref().ok_or("no producer")?;
        let mut ids = vec![];
        for body in texts(given, "bodies") {
            let mut builder = MessageBuilder::builder()
                .set_topic(text(given, "topic"))
                .set_body(body.into_bytes());
            if let Some(tag) = given["tag"].as_str() {
                builder = builder.set_tag(tag);
            }
            if let Some(keys) = given["keys"].as_str() {
                builder = builder.set_keys(vec![keys]);
            }
            if let Some(group) = given["message_group"].as_str() {
                builder = builder.set_message_group(group);
            }
            if let Some(due_s) = given["delivery_timestamp"].as_i64() {
                builder = builder.set_delivery_timestamp(due_s);
            }
            if let Some(properties) = given["properties"].as_object() {
                let pairs = properties.iter();
                let text =
                    pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default()));
                builder = builder.set_properties(text.collect::<HashMap<_, _>>());
            }
            ids.push(
                producer
                    .send(builder.build()?)
                    .await?
                    .message_id()
                    .to_string(),
            );
        }
        Ok(json!({ "ids": ids }))
    }

    async fn half(&self, given: &Value) -> Answer {
        let producer = self.producer.as_ref().ok_or("no producer")?;
        let body = text(given, "body").into_bytes();
        let message = MessageBuilder::transaction_message_builder(text(given, "topic"), body);
        let transaction = producer.send_transaction_message(message.build()?).await?;
        let id = transaction.message_id().to_string();
        match given["resolution"].as_str() {
            Some("commit") => transaction.commit().await?,
            Some("rollback") => transaction.rollback().await?,
            _ => (),
        }
        Ok(json!({ "id": id }))
    }
}

#[tokio::main]
async fn main() {
    let arguments = std::env::args().skip(1).collect();
    let mut program = Program {
        arguments,
        ..Program::default()
    };
    for line in stdin().lock().lines() {
        let (name, given): (String, Value) = serde_json::from_str(&line.unwrap()).unwrap();
        let mut answer = match program.answer(&name, &given).await {
            Ok(found) => found,
            Err(error) => json!({ "error": error.to_string() }),
        };
        answer["done"] = json!(name);
        say(answer);
    }
    std::process::exit(0);
}
