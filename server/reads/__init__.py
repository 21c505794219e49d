"""The way of messages out of the store: pulls, long polls, subscriptions."""
