-- Events by day, actor and scope.
-- grain: day, actor, scope
-- by: day
-- chart: heat day, actor, events | Who did what
SELECT to_date(occurred_at) AS day, actor, scope, count(*) AS events, count(DISTINCT stream) AS streams
FROM events
GROUP BY to_date(occurred_at), actor, scope
