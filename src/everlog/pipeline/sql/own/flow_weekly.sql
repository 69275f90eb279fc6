-- Every week in which work packages were finished: how many, and how long they took.
-- grain: week
-- chart: lines week, lead_p50, lead_p85, lead_p95, cycle_p50, cycle_p85, cycle_p95 | How long it takes, in hours
SELECT
  to_date(date_trunc('week', done_at)) AS week,
  count(*) AS done,
  round(round(percentile(lead_hours, 0.5), 8), 2) AS lead_p50,
  round(round(percentile(lead_hours, 0.85), 8), 2) AS lead_p85,
  round(round(percentile(lead_hours, 0.95), 8), 2) AS lead_p95,
  round(round(percentile(cycle_hours, 0.5), 8), 2) AS cycle_p50,
  round(round(percentile(cycle_hours, 0.85), 8), 2) AS cycle_p85,
  round(round(percentile(cycle_hours, 0.95), 8), 2) AS cycle_p95
FROM flow
WHERE done_at IS NOT NULL
GROUP BY to_date(date_trunc('week', done_at))
ORDER BY week
