-- Chat and market by day, scope and type.
-- grain: day, scope, type
-- by: day
-- chart: bars day, events by type | Chat and market
SELECT to_date(occurred_at) AS day, scope, type, count(*) AS events, count(DISTINCT actor) AS people
FROM events
WHERE split_part(type, '.', 1) IN ({talk})
GROUP BY to_date(occurred_at), scope, type
