-- reuse_time: how old a block is when it pays: hits by the time since the block was last used
-- reads: requests, reuse_runs
-- parameters: $ages_seconds (upper ends of the age ranges, default [1, 10, 60, 300, 900, 1800, 3600, 7200,
--     14400, 28800, 86400, 604800]), $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB,
--     p99 or unlimited, default unlimited)
-- returns: pool VARCHAR (null: all together), over_seconds DOUBLE (null in the first range), to_seconds
--     DOUBLE (inclusive; null in the last range), is_known BOOLEAN (false: a request without a timestamp),
--     hit_blocks BIGINT, hit_tokens BIGINT, share_of_hits DOUBLE (of hit blocks), share_so_far DOUBLE
--     (of hit blocks no older than to_seconds)
-- example:
--     SELECT over_seconds, to_seconds, hit_blocks, pct(share_so_far) AS percent FROM reuse_time('60, 3600')
--     over_seconds  to_seconds  hit_blocks  percent
--                           60           9    18.37
--               60        3600          27    73.47
--             3600                      13      100
WITH ends AS (
    SELECT DISTINCT microseconds(item) AS to_us FROM (SELECT unnest(items($ages_seconds)) AS item)
    UNION ALL
    SELECT NULL
),

ranges AS (
    SELECT lag(to_us) OVER (ORDER BY to_us NULLS LAST) AS over_us, to_us, true AS is_known FROM ends
    UNION ALL
    SELECT NULL, NULL, false
),

served AS (
    SELECT
        pool,
        age_us,
        sum(hits(depth, depth_head_first, blocks, capacity)) AS hit_blocks,
        sum(tokens_per_block * hits(depth, depth_head_first, blocks, capacity)) AS hit_tokens
    FROM measured_runs, (SELECT capacity_blocks($capacity_blocks) AS capacity)
    GROUP BY GROUPING SETS ((age_us), (age_us, pool))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
),

counted AS (
    SELECT
        pool_totals.pool,
        ranges.*,
        coalesce(sum(hit_blocks), 0) AS hit_blocks,
        coalesce(sum(hit_tokens), 0) AS hit_tokens
    FROM pool_totals
    CROSS JOIN ranges
    LEFT JOIN served
        ON pool_totals.pool IS NOT DISTINCT FROM served.pool
        AND (age_us IS NOT NULL) = is_known
        AND coalesce(age_us > over_us, true)
        AND coalesce(age_us <= to_us, true)
    GROUP BY ALL
)

SELECT
    pool,
    over_us / 1000000 AS over_seconds,
    to_us / 1000000 AS to_seconds,
    is_known,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(sum(hit_blocks) OVER (PARTITION BY pool), 0) AS share_of_hits,
    sum(hit_blocks) OVER (PARTITION BY pool ORDER BY is_known DESC, to_us NULLS LAST)
        / nullif(sum(hit_blocks) OVER (PARTITION BY pool), 0) AS share_so_far
FROM counted
WHERE is_known OR hit_blocks > 0
ORDER BY pool NULLS FIRST, is_known DESC, to_us NULLS LAST
