// A program that uses RocketMQ's own client for Go, and nothing of ours: program HOST:PORT [KEY SECRET [tls]].
// It takes a command a line, as JSON, and answers each with a line, as python_program.py does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type given struct {
	Topic        string            `json:"topic"`
	Group        string            `json:"group"`
	Tag          string            `json:"tag"`
	Keys         string            `json:"keys"`
	MessageGroup string            `json:"message_group"`
	DeliveryS    int64             `json:"delivery_timestamp"`
	Body         string            `json:"body"`
	Resolution   string            `json:"resolution"`
	Bodies       []string          `json:"bodies"`
	Ids          []string          `json:"ids"`
	Id           string            `json:"id"`
	InvisibleS   int               `json:"invisible_s"`
	Lite         string            `json:"lite"`
	Parent       string            `json:"parent"`
	Names        []string          `json:"names"`
	Properties   map[string]string `json:"properties"`
}

type answer map[string]any

var (
	saying   sync.Mutex
	held     = map[string]*rmq.MessageView{}
	config   rmq.Config
	producer rmq.Producer
	simple   rmq.SimpleConsumer

	// Of push.go, which old releases do not have.
	doPush = func(string, given) error { return nil }
	// Of lite.go, if it is compiled with it.
	setLite = func(*rmq.Message, string) {}
	doLite  = func(string, given) error { return nil }
)

func say(one answer) {
	text, _ := json.Marshal(one)
	saying.Lock()
	defer saying.Unlock()
	fmt.Println("ANSWER", string(text))
}

func shown(message *rmq.MessageView) answer {
	return answer{
		"body":       string(message.GetBody()),
		"id":         message.GetMessageId(),
		"tag":        message.GetTag(),
		"keys":       message.GetKeys(),
		"group":      message.GetMessageGroup(),
		"properties": message.GetProperties(),
		"attempt":    message.GetDeliveryAttempt(),
	}
}

// Tells what it is asked; what begins with `bad` was not done.
func check(message *rmq.MessageView) rmq.TransactionResolution {
	body := string(message.GetBody())
	say(answer{"pushed": answer{"checked": body}, "failed": false})
	if strings.HasPrefix(body, "bad") {
		return rmq.ROLLBACK
	}
	return rmq.COMMIT
}

func subscription(of given) map[string]*rmq.FilterExpression {
	if of.Tag == "" {
		return map[string]*rmq.FilterExpression{of.Topic: rmq.SUB_ALL}
	}
	return map[string]*rmq.FilterExpression{of.Topic: rmq.NewFilterExpression(of.Tag)}
}

func ofGroup(group string) *rmq.Config {
	made := config
	made.ConsumerGroup = group
	return &made
}

func do(name string, of given) (answer, error) {
	ctx := context.Background()
	var err error
	switch name {
	case "producer":
		producer, err = rmq.NewProducer(&config, rmq.WithTopics(of.Topic),
			rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
		if err == nil {
			err = producer.Start()
		}
		return answer{}, err
	case "send":
		if producer == nil {
			return nil, errors.New("no producer")
		}
		ids := []string{}
		for _, body := range of.Bodies {
			message := &rmq.Message{Topic: of.Topic, Body: []byte(body)}
			if of.Tag != "" {
				message.SetTag(of.Tag)
			}
			if of.Keys != "" {
				message.SetKeys(of.Keys)
			}
			if of.MessageGroup != "" {
				message.SetMessageGroup(of.MessageGroup)
			}
			if of.DeliveryS != 0 {
				message.SetDelayTimestamp(time.Unix(of.DeliveryS, 0))
			}
			if of.Lite != "" {
				setLite(message, of.Lite)
			}
			for key, value := range of.Properties {
				message.AddProperty(key, value)
			}
			receipts, err := producer.Send(ctx, message)
			if err != nil {
				return nil, err
			}
			ids = append(ids, receipts[0].MessageID)
		}
		return answer{"ids": ids}, nil
	case "half":
		transaction := producer.BeginTransaction()
		message := &rmq.Message{Topic: of.Topic, Body: []byte(of.Body)}
		receipts, err := producer.SendWithTransaction(ctx, message, transaction)
		if err != nil {
			return nil, err
		}
		switch of.Resolution {
		case "commit":
			err = transaction.Commit()
		case "rollback":
			err = transaction.RollBack()
		}
		return answer{"id": receipts[0].MessageID}, err
	case "simple":
		simple, err = rmq.NewSimpleConsumer(ofGroup(of.Group),
			withAwaitDuration(5*time.Second), withExpressions(subscription(of)))
		if err == nil {
			err = simple.Start()
		}
		return answer{}, err
	case "receive":
		messages, err := simple.Receive(ctx, 32, 30*time.Second)
		var status *rmq.ErrRpcStatus
		if errors.As(err, &status) && status.GetCode() == 40401 {
			err = nil // no new message: an error of this client
		}
		found := []answer{}
		for _, message := range messages {
			held[message.GetMessageId()] = message
			found = append(found, shown(message))
		}
		return answer{"messages": found}, err
	case "ack":
		for _, id := range of.Ids {
			if err := simple.Ack(ctx, held[id]); err != nil {
				return nil, err
			}
		}
		return answer{}, nil
	case "change":
		return answer{}, simple.ChangeInvisibleDuration(held[of.Id], time.Duration(of.InvisibleS)*time.Second)
	case "push":
		return answer{}, doPush(name, of)
	case "lite_push", "subscribe", "unsubscribe":
		return answer{}, doLite(name, of)
	case "stop":
		err = errors.Join(doLite(name, of), doPush(name, of))
		if producer != nil {
			err = errors.Join(err, producer.GracefulStop())
		}
		if simple != nil {
			err = errors.Join(err, simple.GracefulStop())
		}
		producer, simple = nil, nil
		return answer{}, err
	}
	return nil, fmt.Errorf("unknown: %s", name)
}

func main() {
	arguments := append(os.Args[1:], "", "", "")
	setTLS(arguments[3] == "tls")
	config = rmq.Config{
		Endpoint: arguments[0],
		Credentials: &credentials.SessionCredentials{
			AccessKey: arguments[1], AccessSecret: arguments[2],
		},
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command []json.RawMessage
		var name string
		var of given
		if json.Unmarshal(lines.Bytes(), &command) != nil || len(command) != 2 {
			panic("no command: " + lines.Text())
		}
		_ = json.Unmarshal(command[0], &name)
		_ = json.Unmarshal(command[1], &of)
		found, err := do(name, of)
		if err != nil {
			found = answer{"error": err.Error()}
		}
		found["done"] = name
		say(found)
	}
}
