"""RocksDB options, each with its reason. A profile is plain numbers; `build_*` makes the options.

The numbers suit one Python process of moderate memory on two cores: caches and memtables are
bounded for the whole database, not per family or per queue, so a million queues cost no more
memory than ten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FamilyProfile:
    """Settings of a column family."""

    name: str
    # One memtable. A full one is flushed, with atomic flush all families at once, so this
    # bounds what a crash makes the log replay: 32 MiB are about 250,000 rows of a unit each.
    memtable_bytes: int = 32 * MIB
    # Memtables, the one being written included: two more may wait for their flush.
    memtable_count: int = 3
    # Bytes of a data block before compression: what one cache miss reads and unpacks.
    block_bytes: int = 16 * KIB
    # Bloom filter bits a key. 10 let through 1 %, 16 let through 0.05 %.
    bloom_bits: int = 10
    # A filter for each memtable, for rows that are looked up one by one.
    point_reads: bool = False
    # zstd on the last level, where rows lie for long and are read seldom.
    zstd_bottommost: bool = True
    # Size of files of the first two levels. A file within one queue overlaps nothing that is
    # written later; a file that spans two queues is rewritten completely, so files are small. Files
    # of each further level are four times as large, so that few are open.
    file_bytes: int = 8 * MIB
    # Size of the first level below L0. While the family is smaller it has one level, and a
    # compaction rewrites as much of it as the L0 files span: everything, if they have rows of many
    # queues. Eight L0 files of units are about 25 MiB, because they shrink to a tenth of their
    # memtable.
    base_bytes: int = 64 * MIB
    # Number of L0 files at which compaction starts, writes are slowed (here: rejected), writes
    # stop. Each file costs a scan 0.8 us.
    l0_compact: int = 8
    l0_slow: int = 24
    l0_stop: int = 32


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Settings of one database."""

    families: tuple[FamilyProfile, ...]
    # The families whose values end with an expiry stamp: see expiry_filter.py.
    filtered: tuple[str, ...] = ()
    # The family whose rows say how far the others go. It becomes durable last.
    last: str = ""
    cache_bytes: int = 128 * MIB
    # File descriptors. Many machines start a process with 1024, and the log needs some too.
    max_open_files: int = 256
    # All memtables that take writes, over all families.
    memtables_bytes: int = 80 * MIB
    background_jobs: int = 2
    rate_bytes_per_s: int = 64 * MIB
    # Count reads, writes and cache hits: 1 to 4 % of a call of RocksDB.
    statistics: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(family.name for family in self.families)


def _small_family(name: str) -> FamilyProfile:
    """For few small rows that are read one by one."""
    return FamilyProfile(
        name=name,
        memtable_bytes=8 * MIB,
        block_bytes=4 * KIB,
        bloom_bits=16,
        point_reads=True,
        zstd_bottommost=False,
        file_bytes=16 * MIB,
        base_bytes=32 * MIB,
    )


#: The derived database: units, bounds and dispatch point, key index, state.
DERIVED = Profile(
    families=(
        # Units: written once, rising within each queue, read in runs. A key differs from its
        # neighbour in the last bytes, so blocks shrink to a quarter; larger ones gain little.
        FamilyProfile(name="default", bloom_bits=16),
        # Bounds: random point reads and small overwrites, one row or two for each queue. Small
        # blocks for the point reads. Only lz4, since rows are rewritten so often that zstd would
        # compress the same ones again and again. The first level is large enough for the bounds of
        # millions of queues: two levels save nothing if rows are overwritten at random.
        FamilyProfile(
            name="offset",
            block_bytes=4 * KIB,
            bloom_bits=16,
            point_reads=True,
            zstd_bottommost=False,
            file_bytes=32 * MIB,
            base_bytes=256 * MIB,
        ),
        # Message keys: random inserts, never overwritten, read by short range. Range reads do not
        # ask the filter; 10 bits serve the point reads of checks.
        FamilyProfile(name="index", bloom_bits=10),
        # State: topics, groups, offsets.
        _small_family("state"),
    ),
    filtered=("default", "index"),
    last="offset",
)


#: RocketMQ's consume queues in RocksDB, for reading.
ROCKETMQ = Profile(families=(FamilyProfile(name="default"), FamilyProfile(name="offset")))


def small_profile(*families: str) -> Profile:
    """For few small rows: RocketMQ's tables of topics and offsets, and ours before format 2."""
    return Profile(
        families=tuple(
            replace(_small_family(name), l0_compact=4) for name in families or ("default",)
        ),
        cache_bytes=16 * MIB,
        max_open_files=64,
        memtables_bytes=16 * MIB,
    )


def build_database_options(profile: Profile, *, create: bool) -> Options:
    """Options of the database as a whole. Without `create`, a missing database is an error.

    Missing families are created, empty, when the database is opened for writing: an older program
    did not have them.
    """
    options = Options(raw_mode=True)  # bytes in, bytes out: no type tag before keys and values
    options.create_if_missing(create)
    options.create_missing_column_families(True)  # noqa: FBT003 - the binding takes no name
    # Nothing is written to a log of RocksDB's: the commit log has all of it. So nothing else keeps
    # the families at one dispatch point.
    options.set_atomic_flush(True)
    # A file that is missing or does not fit the manifest fails the opening, not a later read.
    options.set_paranoid_checks(True)
    # For a database that another program wrote: if a crash tore the last record of its log, the
    # record is dropped; damage before it fails the opening.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_max_open_files(profile.max_open_files)
    # RocksDB would start 15 more threads for each family as often as it reads a manifest, however
    # few files there are: a fifth of the time of a small opening.
    options.set_max_file_opening_threads(2)
    # One flush and one compaction at the same time: there are two cores, and Python needs one of
    # them.
    options.set_max_background_jobs(profile.background_jobs)
    options.set_max_subcompactions(1)
    # Flush and compaction may write this much (refilled each 100 ms): the commit log shares the
    # disk, and its fsync is what callers wait for.
    options.set_ratelimiter(profile.rate_bytes_per_s, 100_000, 10)
    # Written pages go to the disk bit by bit rather than as one burst at the end of a file.
    options.set_bytes_per_sync(MIB)
    options.set_db_write_buffer_size(profile.memtables_bytes)
    # One thread writes, holding the GIL. Single-writer memtables skip the atomics, and their
    # insert hint makes rising keys cheap.
    options.set_allow_concurrent_memtable_write(False)
    options.set_enable_write_thread_adaptive_yield(False)
    if profile.statistics:
        options.enable_statistics()
    # Statistics in the info log are not read, so no thread writes them there.
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    # RocksDB's own info log: a few files, not one of unlimited size.
    options.set_max_log_file_size(4 * MIB)
    options.set_keep_log_file_num(4)
    # Rewritten at each opening; a large manifest makes opening slow.
    options.set_max_manifest_file_size(16 * MIB)
    return options


def build_family_options(family: FamilyProfile, cache: Cache) -> Options:
    """Options of one family; `cache` is shared by all families of the database."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(family.memtable_bytes)
    options.set_max_write_buffer_number(family.memtable_count)
    if family.point_reads:
        # Next offsets of idle queues are looked up on their first use: most are not in memory,
        # and this spares the walk down the skip list. Two percent of the memtable.
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(0.02)
    # Levels, not universal: a manual compaction of a universal family always rewrites the whole
    # family, needs its size again on the disk, and cannot be cut into pieces. After a drop of
    # segments only ranges with expired units are to be rewritten.
    options.set_compaction_style(DBCompactionStyle.level())
    options.set_level_compaction_dynamic_level_bytes(True)  # about 10 % dead rows at most
    options.set_level_zero_file_num_compaction_trigger(family.l0_compact)
    # Between slow and stop RocksDB delays writes. Ours must not wait, since they hold the GIL: they
    # are rejected. So the two limits are close together, and far above the start of compaction.
    options.set_level_zero_slowdown_writes_trigger(family.l0_slow)
    options.set_level_zero_stop_writes_trigger(family.l0_stop)
    options.set_max_bytes_for_level_base(family.base_bytes)
    options.set_target_file_size_base(family.file_bytes)
    options.set_target_file_size_multiplier(4)
    # lz4 unpacks faster than the disk reads; zstd halves what lies still.
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(
        DBCompressionType.zstd() if family.zstd_bottommost else DBCompressionType.lz4()
    )
    options.set_block_based_table_factory(build_table_options(family, cache))
    return options


def build_table_options(family: FamilyProfile, cache: Cache) -> BlockBasedOptions:
    """How files of the family are laid out, filtered and cached."""
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(family.block_bytes)
    # Whole-file filters. Also where most keys exist: a key that does not is a new queue.
    table.set_bloom_filter(family.bloom_bits, block_based=False)
    # Index and filter blocks count against the cache. Outside of it they would grow with the number
    # of files, without a bound. They are in pieces, because the cache is divided into shards of a
    # few MiB at most: a large file's whole filter would fit none of them and be read again by each
    # lookup. With very small pieces, finding them costs more than using them.
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(64 * KIB)
    table.set_pin_top_level_index_and_filter(True)
    # L0 files are asked by every read; their filters are not evicted by a scan.
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # Version 5 is the oldest with today's filters, so a RocketMQ broker's RocksDB reads it too.
    table.set_format_version(5)
    return table
