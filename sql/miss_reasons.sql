-- miss_reasons: why each missed token was missed; the reasons add up to all missed tokens
-- reads: requests, reuse_runs
-- parameters: $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB, p99 or unlimited,
--     default p99), $ttl_seconds (time to live since the last use, none for no limit, default none)
-- returns: pool VARCHAR (null: all together), reason VARCHAR (first seen: the block was never seen before;
--     capacity: evicted, though live; ttl: expired, though within the capacity, or of unknown age; capacity
--     and ttl: either alone had sufficed; partial block: tokens that are in no block; beyond input_length:
--     negative, where a log has more blocks than its tokens fill), missed_blocks BIGINT,
--     missed_tokens BIGINT, share_of_missed_tokens DOUBLE, share_of_input_tokens DOUBLE
-- example:
--     SELECT reason, missed_blocks, missed_tokens FROM miss_reasons(20, ttl_seconds := 3600)
--                  reason  missed_blocks  missed_tokens
--              first seen             27            425
--                capacity              0              0
--                     ttl              9            144
--        capacity and ttl              4             64
--           partial block              0              0
--     beyond input_length              0              0
WITH limits AS (
    SELECT
        capacity_blocks($capacity_blocks) AS capacity,
        CASE WHEN CAST($ttl_seconds AS VARCHAR) = 'none' THEN NULL
            WHEN has_timestamps() THEN microseconds($ttl_seconds) END AS ttl_us
),

parts AS (
    SELECT
        pool,
        blocks,
        tokens_per_block,
        hits(depth, depth_head_first, blocks, capacity) AS kept,
        ttl_us IS NULL OR coalesce(age_us <= ttl_us, false) AS is_live
    FROM measured_runs, limits
),

known AS (
    SELECT pool, 'capacity' AS reason, blocks - kept AS blocks, tokens_per_block FROM parts WHERE is_live
    UNION ALL
    SELECT pool, 'ttl', kept, tokens_per_block FROM parts WHERE NOT is_live
    UNION ALL
    SELECT pool, 'capacity and ttl', blocks - kept, tokens_per_block FROM parts WHERE NOT is_live
),

missed AS (
    SELECT pool, reason, blocks, blocks * tokens_per_block AS tokens FROM known
    UNION ALL
    SELECT pool, 'first seen', blocks - ceiling_blocks, cacheable_tokens - ceiling_tokens
    FROM requests
    WHERE measured
    UNION ALL
    SELECT pool, 'partial block', 0, greatest(0, input_length - cacheable_tokens) FROM requests WHERE measured
    UNION ALL
    SELECT pool, 'beyond input_length', 0, least(0, input_length - cacheable_tokens)
    FROM requests
    WHERE measured
),

summed AS (
    SELECT pool, reason, sum(blocks) AS blocks, sum(tokens) AS tokens
    FROM missed
    GROUP BY GROUPING SETS ((reason), (pool, reason))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
)

SELECT
    pool_totals.pool,
    reasons.reason,
    CAST(coalesce(summed.blocks, 0) AS BIGINT) AS missed_blocks,
    CAST(coalesce(tokens, 0) AS BIGINT) AS missed_tokens,
    coalesce(tokens, 0) / nullif(sum(tokens) OVER (PARTITION BY pool_totals.pool), 0) AS share_of_missed_tokens,
    coalesce(tokens, 0) / nullif(input_tokens, 0) AS share_of_input_tokens
FROM pool_totals
CROSS JOIN (
    SELECT unnest(['first seen', 'capacity', 'ttl', 'capacity and ttl', 'partial block', 'beyond input_length'])
        AS reason,
    generate_subscripts([1, 2, 3, 4, 5, 6], 1) AS place
) AS reasons
LEFT JOIN summed ON pool_totals.pool IS NOT DISTINCT FROM summed.pool AND reasons.reason = summed.reason
ORDER BY pool_totals.pool NULLS FIRST, place
