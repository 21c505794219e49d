package kvcq.interop;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;

/**
 * Drops the column families that the original does not know.
 *
 * Our database has one more, of message keys, and RocksDB refuses to open a database without naming
 * all of its families. The rows of the others stay as they are.
 */
final class ForeignFamilies {
    private static final Set<String> KNOWN = Set.of("default", "offset");

    private ForeignFamilies() {
    }

    static void drop(Path database) throws RocksDBException {
        if (!Files.exists(database.resolve("CURRENT"))) {
            return;
        }
        RocksDB.loadLibrary();
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        boolean foreign = false;
        try (Options options = new Options()) {
            for (byte[] name : RocksDB.listColumnFamilies(options, database.toString())) {
                families.add(new ColumnFamilyDescriptor(name));
                foreign |= !KNOWN.contains(new String(name, StandardCharsets.UTF_8));
            }
        }
        if (!foreign) {
            return; // a database of the original is opened by the original alone
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (DBOptions options = new DBOptions();
            RocksDB db = RocksDB.open(options, database.toString(), families, handles)) {
            for (ColumnFamilyHandle handle : handles) {
                if (!KNOWN.contains(new String(handle.getName(), StandardCharsets.UTF_8))) {
                    db.dropColumnFamily(handle);
                }
                handle.close();
            }
        }
    }
}
