-- Events and bytes of payloads by the day on which they arrived, and by type; `total` up to that day.
-- grain: day, type
-- chart: bars day, events by type | How the log grows
WITH days AS (
  SELECT to_date(received_at) AS day, type, count(*) AS events, coalesce(sum(octet_length(payload)), 0) AS bytes
  FROM events
  GROUP BY to_date(received_at), type
)
SELECT day, type, events, bytes,
  sum(events) OVER (PARTITION BY type ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total
FROM days
ORDER BY day, type
