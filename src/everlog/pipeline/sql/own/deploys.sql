-- Every deploy: where, by whom, how long it took from the request to its end, and how it ended.
-- chart: bars requested_at, count by outcome | Deploys
WITH steps AS (
  SELECT stream, scope, actor, lamport, id, occurred_at, type, substring_index(type, '.', -1) AS step
  FROM events
  WHERE startswith(type, {deploys})
),
runs AS (
  SELECT
    stream,
    max(scope) AS scope,
    max_by(actor, struct(-lamport, id)) AS requested_by,
    min(CASE WHEN step = 'requested' THEN occurred_at END) AS requested_at,
    min(CASE WHEN step IN ('succeeded', 'failed') THEN occurred_at END) AS ended_at,
    max_by(step, struct(lamport, id)) AS outcome
  FROM steps
  WHERE step IN ('requested', 'started', 'succeeded', 'failed', 'rolled_back') AND type = concat({deploys}, '.', step)
  GROUP BY stream
)
SELECT
  substring_index(stream, '/', -1) AS deploy,
  scope,
  requested_by,
  requested_at,
  ended_at,
  outcome,
  round((unix_micros(ended_at) - unix_micros(requested_at)) / 6e7, 2) AS minutes
FROM runs
ORDER BY requested_at, deploy
