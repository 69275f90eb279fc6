-- Every day from the first to the last: how many work packages were planned, begun, finished and in progress.
-- grain: day
-- chart: lines day, done, begun, in_progress | Work packages day by day
WITH counted AS (
  SELECT to_date(planned_at) AS day, 1 AS planned, 0 AS begun, 0 AS done FROM flow WHERE planned_at IS NOT NULL
  UNION ALL
  SELECT to_date(begun_at) AS day, 0 AS planned, 1 AS begun, 0 AS done FROM flow WHERE begun_at IS NOT NULL
  UNION ALL
  SELECT to_date(done_at) AS day, 0 AS planned, 0 AS begun, 1 AS done FROM flow WHERE done_at IS NOT NULL
),
span AS (
  SELECT min(day) AS first, max(day) AS last FROM counted
),
whole AS (
  SELECT day, planned, begun, done FROM counted
  UNION ALL
  SELECT explode(sequence(first, last)) AS day, 0 AS planned, 0 AS begun, 0 AS done FROM span
),
days AS (
  SELECT day, sum(planned) AS planned, sum(begun) AS begun, sum(done) AS done FROM whole GROUP BY day
)
SELECT day, planned, begun, done,
  sum(begun - done) OVER (ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS in_progress
FROM days
ORDER BY day
