-- _answer: what kvcap replay says of every pool, in one row: its totals, its hit rates at capacities, the
--     capacity for shares of its ceiling, and the capacity that its requests required. Among the capacities is
--     always the one that $headline per cent of the requests required at most. Rows in rows are nothing to
--     print, so that this is no query to ask by name: ask those that it joins
-- reads: curve, requests, reuse_runs
-- parameters: $capacities_blocks (list of capacities of each pool: blocks, or text such as 2TiB, p99 or
--     unlimited, default [p50, p90, p95, p99, unlimited]), $shares (list of percentages of the ceiling, default
--     [50, 90, 95, 99]), $percents (list of percentiles, default [50, 90, 95, 99, 99.9]), $headline (one of the
--     percentiles, whose capacity is added, default 99)
-- returns: pool VARCHAR (null: all together), requests BIGINT, blocks BIGINT, ceiling_blocks BIGINT,
--     input_tokens BIGINT, ceiling_tokens BIGINT, mean_input_tokens DOUBLE, capacities LIST (rows of
--     hit_rate_curve), shares LIST (rows of capacity_for_hit_rate), required LIST (rows of
--     capacity_percentiles)
WITH percentiles AS MATERIALIZED (
    FROM capacity_percentiles(percents := $percents)
),

wanted AS (
    SELECT list_concat(items($capacities_blocks), (
        SELECT list(CAST(required_blocks AS VARCHAR))
        FROM percentiles
        WHERE sample = 'samples' AND percent = CAST($headline AS DOUBLE)
    )) AS listed
),

at_capacities AS (
    SELECT pool, list(found ORDER BY capacity_blocks) AS capacities
    FROM hit_rate_curve((SELECT listed FROM wanted)) AS found
    GROUP BY pool
),

for_shares AS (
    SELECT pool, list(found ORDER BY percent) AS shares
    FROM capacity_for_hit_rate($shares) AS found
    GROUP BY pool
),

required AS (
    SELECT pool, list(percentiles ORDER BY sample DESC, percent) AS required
    FROM percentiles
    GROUP BY pool
)

SELECT asked.*, at_capacities.capacities, for_shares.shares, required.required
FROM pool_totals AS asked
LEFT JOIN at_capacities ON asked.pool IS NOT DISTINCT FROM at_capacities.pool
LEFT JOIN for_shares ON asked.pool IS NOT DISTINCT FROM for_shares.pool
LEFT JOIN required ON asked.pool IS NOT DISTINCT FROM required.pool
ORDER BY asked.pool NULLS FIRST
