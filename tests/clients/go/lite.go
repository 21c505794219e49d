//go:build lite

// Consumers of lite topics, which older releases do not have.
package main

import (
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

var lite rmq.LitePushConsumer

func init() {
	setLite = func(message *rmq.Message, name string) { message.SetLiteTopic(name) }
	doLite = func(name string, of given) error {
		var err error
		switch name {
		case "lite_push":
			lite, err = rmq.NewLitePushConsumer(ofGroup(of.Group),
				rmq.NewLitePushConsumerConfig(of.Parent, 30*time.Second),
				rmq.WithPushAwaitDuration(5*time.Second),
				rmq.WithPushMessageListener(&rmq.FuncMessageListener{
					Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
						one := shown(message)
						one["lite"] = message.GetLiteTopic()
						return consumeShown(message, one)
					},
				}))
			if err == nil {
				err = lite.Start()
			}
		case "subscribe":
			for _, each := range of.Names {
				if err = lite.SubscribeLite(each); err != nil {
					break
				}
			}
		case "unsubscribe":
			err = lite.UnSubscribeLite(of.Lite)
		case "stop":
			if lite != nil {
				err = lite.GracefulStop()
			}
		}
		return err
	}
}
