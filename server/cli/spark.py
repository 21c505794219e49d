"""kvcq spark: the pipeline on Spark, which has its commands beside it."""

from migration.spark.cli import spark as _group
from server.cli.terminal import Sections

spark = Sections("spark", commands=_group.commands, help=_group.help)
