-- session_vs_cross: hits on blocks that the same session used last, against those that another one did
-- reads: requests, reuse_runs
-- parameters: $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB, p99 or unlimited,
--     default unlimited)
-- returns: pool VARCHAR (null: all together), last_used_by VARCHAR (same session, other session, or no
--     session: one of the two requests has none), hit_blocks BIGINT, hit_tokens BIGINT,
--     share_of_hits DOUBLE (of hit tokens), block_hit_rate DOUBLE, token_hit_rate DOUBLE (parts of the
--     pool's rates: they add up to them)
-- example:
--     SELECT last_used_by, hit_blocks, pct(share_of_hits) AS percent FROM session_vs_cross
--      last_used_by  hit_blocks  percent
--      same session          28    57.14
--     other session          21    42.86
--        no session           0        0
WITH served AS (
    SELECT
        pool,
        CASE WHEN session_id = source_session_id THEN 'same session'
            WHEN session_id <> source_session_id THEN 'other session'
            ELSE 'no session' END AS last_used_by,
        sum(hits(depth, depth_head_first, blocks, capacity)) AS hit_blocks,
        sum(tokens_per_block * hits(depth, depth_head_first, blocks, capacity)) AS hit_tokens
    FROM measured_runs, (SELECT capacity_blocks($capacity_blocks) AS capacity)
    GROUP BY GROUPING SETS ((2), (pool, 2))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
)

SELECT
    pool_totals.pool,
    kinds.last_used_by,
    CAST(coalesce(hit_blocks, 0) AS BIGINT) AS hit_blocks,
    CAST(coalesce(hit_tokens, 0) AS BIGINT) AS hit_tokens,
    coalesce(hit_tokens, 0) / nullif(sum(hit_tokens) OVER (PARTITION BY pool_totals.pool), 0) AS share_of_hits,
    coalesce(hit_blocks, 0) / nullif(blocks, 0) AS block_hit_rate,
    coalesce(hit_tokens, 0) / nullif(input_tokens, 0) AS token_hit_rate
FROM pool_totals
CROSS JOIN (SELECT unnest(['same session', 'other session', 'no session']) AS last_used_by) AS kinds
LEFT JOIN served
    ON pool_totals.pool IS NOT DISTINCT FROM served.pool
    AND kinds.last_used_by = served.last_used_by
ORDER BY pool_totals.pool NULLS FIRST, kinds.last_used_by DESC
