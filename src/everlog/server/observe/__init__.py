"""What a server shows of itself.

metrics     counters, gauges and histograms, and their text for Prometheus
writes      how large commits are, and how long they take to reach the disk
log_facts   what a log shows: its size, the lag of views and consumers, the age of snapshots
loop_lag    how long the event loop was blocked
health      the routes /healthz, /readyz and /metrics
current     the request that is being answered, for log lines and refusals
json_logs   log lines as JSON
tracing     W3C trace context, and OpenTelemetry if it is installed
"""
