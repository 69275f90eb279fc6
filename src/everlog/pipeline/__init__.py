"""The log on Spark. Only this package imports pyspark, pyarrow and deltalake."""
