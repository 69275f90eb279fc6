-- What was refused in 90 days, by what was asked for and by actor.
-- grain: what, who
-- chart: table what, who, times | What was refused
WITH asked AS (
  SELECT CASE WHEN operation <> '' THEN operation WHEN type <> '' THEN type ELSE code END AS what, actor AS who
  FROM refusals
)
SELECT what, who, count(*) AS times
FROM asked
GROUP BY what, who
ORDER BY times DESC, what, who
