-- Moves of a work package that were made without knowing of the previous move, by another node.
-- The later one in causal order wins. What a move knew is in its `after`; one without that is judged by the lane
-- that it came from.
-- grain: won_id
-- chart: table work_package, at, won_lane, won_by, lost_lane, lost_by | Conflicts
WITH moves AS (
  SELECT stream, occurred_at, id, actor, origin, old_status, new_status, after,
    lag(new_status) OVER (PARTITION BY stream ORDER BY lamport, id) AS lost_lane,
    lag(actor) OVER (PARTITION BY stream ORDER BY lamport, id) AS lost_by,
    lag(id) OVER (PARTITION BY stream ORDER BY lamport, id) AS lost_id,
    lag(origin) OVER (PARTITION BY stream ORDER BY lamport, id) AS lost_origin
  FROM silver.WPStatusChanged
)
SELECT
  substring_index(stream, '/', -1) AS work_package,
  occurred_at AS at,
  new_status AS won_lane,
  actor AS won_by,
  id AS won_id,
  lost_lane,
  lost_by,
  lost_id
FROM moves
WHERE origin <> lost_origin
  AND ((size(after) > 0 AND NOT array_contains(after, lost_id))
    OR (NOT size(after) > 0 AND old_status <> '' AND old_status <> lost_lane))
ORDER BY at, won_id
