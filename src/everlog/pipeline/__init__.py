"""The log on Spark: the only home of pyspark, pyarrow and deltalake. Nothing outside it loads them."""
