"""The Spark pipeline: a store's log, queues and messages on Spark.

Rooms: source/ (data sources for `spark.read.format`), queues/ (queues on disk), verify/, jobs/.
Only this package uses Spark and Arrow; migration/columnar decodes the log. A Python worker imports
the rooms of its tasks, so importing them must be cheap.
"""
