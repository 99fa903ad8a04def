-- miss_reasons: why each missed token was missed; the reasons add up to all missed tokens
-- reads: requests, reuse_runs
-- parameters: $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB, p99 or unlimited,
--     default p99), $ttl_seconds (time to live since the last use, none for no limit, default none)
-- returns: pool VARCHAR (null: all together), reason VARCHAR (first seen: the block was never seen before,
--     or last used beyond the --max-capacity of the run; capacity: evicted, though live; ttl: expired, though
--     within the capacity, or of unknown age; capacity and ttl: either alone had sufficed; last token: known,
--     but the engine computes the last token of every prompt; partial block: tokens that are in no block;
--     beyond input_length: negative, where a log has more blocks than its tokens fill), missed_blocks BIGINT,
--     missed_tokens BIGINT, share_of_missed_tokens DOUBLE, share_of_input_tokens DOUBLE
-- example:
--     SELECT reason, missed_blocks, missed_tokens FROM miss_reasons(20, ttl_seconds := 3600)
--                  reason  missed_blocks  missed_tokens
--              first seen             27            425
--                capacity              0              0
--                     ttl              9            144
--        capacity and ttl              4             64
--              last token              0              0
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

-- Blocks of a prompt that were known but may not hit are its last ones.
asked AS (
    SELECT
        *,
        least(blocks, touched_blocks - cold_blocks) AS known_blocks,
        CASE WHEN known_blocks = blocks THEN cacheable_tokens ELSE ceiling_tokens END AS known_tokens
    FROM requests
    WHERE measured
),

missed AS (
    SELECT pool, reason, blocks, blocks * tokens_per_block AS tokens FROM known
    UNION ALL
    SELECT pool, 'first seen', blocks - known_blocks, cacheable_tokens - known_tokens FROM asked
    UNION ALL
    SELECT pool, 'last token', known_blocks - ceiling_blocks, known_tokens - ceiling_tokens FROM asked
    UNION ALL
    SELECT pool, 'partial block', 0, greatest(0, input_length - cacheable_tokens) FROM asked
    UNION ALL
    SELECT pool, 'beyond input_length', 0, least(0, input_length - cacheable_tokens) FROM asked
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
    SELECT unnest(listed) AS reason, generate_subscripts(listed, 1) AS place
    FROM (
        SELECT [
            'first seen', 'capacity', 'ttl', 'capacity and ttl', 'last token', 'partial block',
            'beyond input_length'
        ] AS listed
    )
) AS reasons
LEFT JOIN summed ON pool_totals.pool IS NOT DISTINCT FROM summed.pool AND reasons.reason = summed.reason
ORDER BY pool_totals.pool NULLS FIRST, place
