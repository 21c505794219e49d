package org.apache.rocketmq.tieredstore;

/** Stands where the broker asks whether its store is tiered; that artifact is not on Maven Central. */
public final class TieredMessageStore {
    private TieredMessageStore() {
    }
}
