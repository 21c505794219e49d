//go:build !old

// Push consumers, and what is named otherwise in releases that do not have them.
package main

import (
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

var (
	push rmq.PushConsumer
	seen sync.Map

	withAwaitDuration = rmq.WithSimpleAwaitDuration
	withExpressions   = rmq.WithSimpleSubscriptionExpressions
)

func consume(message *rmq.MessageView) rmq.ConsumerResult {
	return consumeShown(message, shown(message))
}

func consumeShown(message *rmq.MessageView, one answer) rmq.ConsumerResult {
	body := string(message.GetBody())
	_, isOld := seen.LoadOrStore(message.GetMessageId(), true)
	failed := strings.HasPrefix(body, "poison") || strings.HasPrefix(body, "fail") && !isOld
	say(answer{"pushed": one, "failed": failed})
	if failed {
		return rmq.FAILURE
	}
	return rmq.SUCCESS
}

func setTLS(on bool) {
	rmq.EnableSsl = on
}

func init() {
	doPush = func(name string, of given) error {
		var err error
		switch name {
		case "push":
			push, err = rmq.NewPushConsumer(ofGroup(of.Group),
				rmq.WithPushAwaitDuration(5*time.Second),
				rmq.WithPushSubscriptionExpressions(subscription(of)),
				rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
			if err == nil {
				err = push.Start()
			}
		case "stop":
			if push != nil {
				err = push.GracefulStop()
			}
			push = nil
		}
		return err
	}
}
