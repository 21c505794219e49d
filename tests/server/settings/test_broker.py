"""server/settings/broker.py: a broker's settings as ours, each in its unit."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from migration.broker_config import read_properties
from server.settings import KNOWN, Sources, import_broker_conf
from store.config import FlushMode
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

_ALL = """
# a comment
! another
brokerClusterName = east
brokerName=broker-a
bindAddress=0.0.0.0
brokerIP1=10.1.2.3
listenPort:10921
storePathRootDir=/data/\\
    store
mapedFileSizeCommitLog=4194304
maxMessageSize=65536
enabledAppendPropCRC=true
warmMapedFileEnable=true
flushDiskType=SYNC_FLUSH
flushIntervalCommitLog=100
flushCommitLogLeastPages=8
flushCommitLogThoroughInterval=5000
syncFlushTimeout=2500
fileReservedTime=48
deleteWhen=04;16
diskMaxUsedSpaceRatio=70
diskSpaceCleanForciblyRatio=80
diskSpaceWarningLevelRatio=95
deleteFileBatchMax=5
cleanFileForciblyEnable=false
cleanResourceInterval=20000
autoCreateTopicEnable=false
autoCreateSubscriptionGroup=false
defaultTopicQueueNums=4
transactionCheckMax=5
namesrvAddr=10.1.2.4:9876
"""


def _conf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return path


def test_each_setting_with_a_counterpart_is_taken_in_our_unit(tmp_path: Path) -> None:
    imported = import_broker_conf(_conf(tmp_path, _ALL))
    known = {name for name, one in KNOWN.items() if one.about.rocketmq}
    assert set(imported.values) == known, "the broker of this test sets them all"
    file = tmp_path / "kvcq.toml"
    file.write_text(imported.toml())
    config = Sources(file, {"server.insecure_listen": True}).read().config
    store = config.store_config(config.port)
    assert (config.host, config.port, str(config.data_dir)) == ("0.0.0.0", 10921, "/data/store")
    assert (config.metrics_cluster, config.metrics_node) == ("east", "broker-a")
    assert store.store_host == ("10.1.2.3", 10921)
    assert (store.segment_bytes, store.max_body_bytes) == (4 << 20, 65536)
    assert store.flush_mode is FlushMode.SYNC
    assert (store.reserved_hours, store.delete_when_hours) == (48, (4, 16))
    assert (store.disk_clean_ratio, store.disk_full_ratio) == (0.7, 0.95)
    assert (store.reclaim_unexpired, store.auto_create_topics) == (False, False)
    assert not store.auto_create_groups
    assert store.transaction_checks == 5


def test_what_has_no_counterpart_is_listed_and_stands_in_the_file(tmp_path: Path) -> None:
    imported = import_broker_conf(_conf(tmp_path, _ALL))
    assert imported.without_counterpart == {
        "enabledAppendPropCRC": "true",
        "warmMapedFileEnable": "true",
        "flushCommitLogLeastPages": "8",
        "flushCommitLogThoroughInterval": "5000",
        "syncFlushTimeout": "2500",
        "diskSpaceCleanForciblyRatio": "80",
        "deleteFileBatchMax": "5",
        "cleanResourceInterval": "20000",
        "namesrvAddr": "10.1.2.4:9876",
    }
    assert "\n# namesrvAddr = 10.1.2.4:9876\n" in imported.toml()
    assert set(tomllib.loads(imported.toml())) == {"server", "store"}


def test_a_broker_that_says_nothing_reclaims(tmp_path: Path) -> None:
    imported = import_broker_conf(_conf(tmp_path, ""))
    assert imported.values == {"store.reclaim_unexpired": True}


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("flushDiskType=SOMETIMES", "flushDiskType"),
        ("fileReservedTime=long", "fileReservedTime"),
        ("diskMaxUsedSpaceRatio=a", "diskMaxUsedSpaceRatio"),
        ("deleteWhen=4,5", "deleteWhen"),
        ("brokerIP1=here", "brokerIP1"),
        ("autoCreateTopicEnable=perhaps", "autoCreateTopicEnable"),
        ("listenPort=70000", "server.port"),
        ("deleteWhen=25", "store.delete_when_hours"),
        ("diskMaxUsedSpaceRatio=99", "store.disk_full_ratio"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(tmp_path: Path, line: str, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        import_broker_conf(_conf(tmp_path, line))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb : 2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("#a=1\n!b=2\n\n  \n", {}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a = x = y  \r\n", {"a": "x = y"}),
        ("a=1\\\n   2\\\n3\nb=4", {"a": "123", "b": "4"}),
        ("a=C\\:\\\\data\n", {"a": "C:\\data"}),
    ],
)
def test_properties_are_read_as_java_reads_them(
    tmp_path: Path, text: str, properties: dict[str, str]
) -> None:
    assert read_properties(_conf(tmp_path, text)) == properties
