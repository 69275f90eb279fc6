-- Every work package: when it was planned, begun and finished, and how long it was in each lane.
-- Its moves are in causal order, the same on every node; times are those in the events.
-- chart: rows work_package, planned_hours, doing_hours, for_review_hours | Where the time went, in hours
WITH entered AS (
  SELECT stream, scope, lamport, id, occurred_at, 'planned' AS lane, 'planned' AS step
  FROM silver.`{flow_planned}`
  UNION ALL
  SELECT stream, scope, lamport, id, occurred_at, `{flow_lane}` AS lane,
    CASE
      WHEN `{flow_lane}` IN ({lanes_planned}) THEN 'planned'
      WHEN `{flow_lane}` IN ({lanes_doing}) THEN 'doing'
      WHEN `{flow_lane}` IN ({lanes_review}) THEN 'for_review'
      WHEN `{flow_lane}` IN ({lanes_done}) THEN 'done'
    END AS step
  FROM silver.`{flow_moved}`
),
stays AS (
  SELECT stream, scope, lamport, id, occurred_at, lane, step,
    lag(step) OVER (PARTITION BY stream ORDER BY lamport, id) AS came_from,
    greatest(0, unix_micros(lead(occurred_at) OVER (PARTITION BY stream ORDER BY lamport, id))
      - unix_micros(occurred_at)) AS micros
  FROM entered
),
packages AS (
  SELECT
    stream,
    max_by(scope, struct(lamport, id)) AS scope,
    max_by(lane, struct(lamport, id)) AS lane,
    min(occurred_at) AS planned_at,
    min(CASE WHEN step = 'doing' THEN occurred_at END) AS begun_at,
    CASE WHEN max_by(step, struct(lamport, id)) = 'done'
      THEN max(CASE WHEN step = 'done' THEN occurred_at END) END AS done_at,
    count_if(step = 'doing' AND came_from = 'for_review') AS sent_back,
    sum(CASE WHEN step = 'planned' THEN micros ELSE 0 END) AS planned,
    sum(CASE WHEN step = 'doing' THEN micros ELSE 0 END) AS doing,
    sum(CASE WHEN step = 'for_review' THEN micros ELSE 0 END) AS for_review
  FROM stays
  GROUP BY stream
)
SELECT
  substring_index(stream, '/', -1) AS work_package,
  scope,
  lane,
  planned_at,
  begun_at,
  done_at,
  sent_back,
  round(planned / 3.6e9, 4) AS planned_hours,
  round(doing / 3.6e9, 4) AS doing_hours,
  round(for_review / 3.6e9, 4) AS for_review_hours,
  round((unix_micros(done_at) - unix_micros(planned_at)) / 3.6e9, 4) AS lead_hours,
  round((unix_micros(done_at) - unix_micros(begun_at)) / 3.6e9, 4) AS cycle_hours
FROM packages
ORDER BY work_package
