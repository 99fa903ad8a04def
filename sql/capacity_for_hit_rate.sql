-- capacity_for_hit_rate: smallest capacity whose block hits reach a share of the ceiling
-- reads: curve, requests
-- parameters: $percents (list of percentages of the ceiling, default [50, 90, 95, 99])
-- returns: pool VARCHAR (null: all together), percent DOUBLE, capacity_blocks BIGINT,
--     capacity_bytes BIGINT (null without bytes per token), hit_blocks BIGINT
-- example:
--     SELECT * EXCLUDE (pool) FROM capacity_for_hit_rate
--     percent  capacity_blocks  capacity_bytes  hit_blocks
--          50               10          163840          26
--          90               20          327680          45
--          95               22          360448          47
--          99               24          393216          49
WITH wanted AS (
    SELECT pool, percent, ceil_share(ceiling_blocks, percent) AS needed
    FROM pool_totals, (SELECT CAST(unnest(items($percents)) AS DOUBLE) AS percent)
),

segments AS (
    SELECT
        pool,
        capacity_blocks,
        hit_blocks,
        blocks_per_capacity_block AS slope,
        lead(capacity_blocks) OVER (PARTITION BY pool ORDER BY capacity_blocks) - 1 AS last_capacity
    FROM curve
),

candidates AS (
    SELECT
        wanted.pool,
        percent,
        segments.* EXCLUDE (pool),
        CASE
            WHEN hit_blocks >= needed THEN capacity_blocks
            WHEN slope > 0 AND hit_blocks + slope * (last_capacity - capacity_blocks) >= needed
                THEN capacity_blocks + (needed - hit_blocks + slope - 1) // slope
        END AS capacity
    FROM wanted
    JOIN segments ON wanted.pool IS NOT DISTINCT FROM segments.pool
),

reached AS (
    SELECT
        pool,
        percent,
        min(capacity) AS capacity_blocks,
        min_by(hit_blocks + slope * (capacity - capacity_blocks), capacity) AS hit_blocks
    FROM candidates
    GROUP BY pool, percent
)

SELECT
    pool,
    percent,
    CAST(capacity_blocks AS BIGINT) AS capacity_blocks,
    CAST(capacity_blocks AS BIGINT) * (SELECT block_bytes FROM run) AS capacity_bytes,
    CAST(hit_blocks AS BIGINT) AS hit_blocks
FROM reached
ORDER BY pool NULLS FIRST, percent
