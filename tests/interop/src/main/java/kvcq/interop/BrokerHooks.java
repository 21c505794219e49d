package kvcq.interop;

import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.hook.PutMessageHook;

/** What a broker does to a message between the network and the store, for delay levels. */
final class BrokerHooks implements PutMessageHook {
    private final int maxDelayLevel;

    BrokerHooks(int maxDelayLevel) {
        this.maxDelayLevel = maxDelayLevel;
    }

    @Override
    public String hookName() {
        return "delayLevel";
    }

    @Override
    public PutMessageResult executeBeforePutMessage(MessageExt message) {
        if (message.getDelayTimeLevel() > 0 && message instanceof MessageExtBrokerInner) {
            park((MessageExtBrokerInner) message);
        }
        return null;
    }

    /** A delayed message waits in the schedule topic, one queue for each level. */
    private void park(MessageExtBrokerInner message) {
        int level = Math.min(message.getDelayTimeLevel(), maxDelayLevel);
        message.setDelayTimeLevel(level);
        redirect(message, TopicValidator.RMQ_SYS_SCHEDULE_TOPIC, level - 1);
    }

    /** The real place goes into properties, as for half messages of a transaction. */
    static void redirect(MessageExtBrokerInner message, String topic, int queueId) {
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(
            message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setTopic(topic);
        message.setQueueId(queueId);
    }
}
