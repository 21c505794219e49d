//go:build old

// Releases before 5.1.3: only simple consumers, and always TLS.
package main

import rmq "github.com/apache/rocketmq-clients/golang/v5"

var (
	withAwaitDuration = rmq.WithAwaitDuration
	withExpressions   = rmq.WithSubscriptionExpressions
)

func setTLS(bool) {}
