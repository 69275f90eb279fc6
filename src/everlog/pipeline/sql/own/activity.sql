-- Events by day, actor and scope.
-- grain: day, actor, scope
-- by: day
SELECT to_date(occurred_at) AS day, actor, scope, count(*) AS events, count(DISTINCT stream) AS streams
FROM events
GROUP BY to_date(occurred_at), actor, scope
