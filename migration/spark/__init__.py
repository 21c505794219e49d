"""The pipeline: a store's log, queues and messages on Spark.

Rooms: source/ (what `spark.read.format` knows), queues/ (queues as they lie on disk), verify/,
jobs/. Spark and Arrow are used here and nowhere else; the log is decoded by migration/columnar.
A Python worker imports the rooms whose tasks it runs, so their doors are kept cheap.
"""
