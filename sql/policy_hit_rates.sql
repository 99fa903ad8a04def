-- policy_hit_rates: hit rates of the measured requests in every simulation of a policy at a capacity
-- reads: policies, requests
-- parameters: none
-- returns: policy VARCHAR, pool VARCHAR (null: all together), capacity_blocks BIGINT, reserved_blocks BIGINT,
--     hit_blocks BIGINT, hit_tokens BIGINT, block_hit_rate DOUBLE, token_hit_rate DOUBLE,
--     ideal_prefill_speedup DOUBLE (over computing every prompt token; at most 1000),
--     filled BOOLEAN (whether the warm-up requests, or without a warm-up all of them, fill the capacity),
--     dropped_requests BIGINT (larger than the cache)
-- example:
--     SELECT policy, capacity_blocks, hit_blocks, pct(token_hit_rate) AS percent, filled FROM policy_hit_rates
--     policy  capacity_blocks  hit_blocks  percent  filled
--       fifo               10          18    23.82    True
--       fifo               20          38    50.29    True
--        lru               10          26    34.41    True
--        lru               20          45    59.55    True
WITH asked AS (
    SELECT pool, sum(blocks) AS blocks, sum(input_length) AS input_tokens
    FROM requests
    WHERE measured
    GROUP BY GROUPING SETS ((), (pool))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
),

fills_by_pool AS (
    SELECT
        pool,
        coalesce(sum(cold_blocks) FILTER (NOT measured OR (SELECT warm_up_requests = 0 FROM run)), 0) AS blocks
    FROM requests
    GROUP BY pool
),

fills AS (
    SELECT pool, min(blocks) AS blocks
    FROM fills_by_pool
    GROUP BY GROUPING SETS ((), (pool))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
),

rates AS (
    SELECT
        policies.*,
        policies.hit_blocks / nullif(asked.blocks, 0) AS block_hit_rate,
        policies.hit_tokens / nullif(asked.input_tokens, 0) AS token_hit_rate
    FROM policies
    JOIN asked ON policies.pool IS NOT DISTINCT FROM asked.pool
)

SELECT
    rates.policy,
    rates.pool,
    rates.capacity_blocks,
    rates.reserved_blocks,
    rates.hit_blocks,
    rates.hit_tokens,
    rates.block_hit_rate,
    rates.token_hit_rate,
    1 / CASE WHEN rates.token_hit_rate > 0.999 THEN 0.001 ELSE 1 - rates.token_hit_rate END
        AS ideal_prefill_speedup,
    CASE
        WHEN rates.policy LIKE '%-hybrid'
            THEN rates.capacity_blocks * CAST(run.engine_block_bytes AS BIGINT)
                <= fills.blocks * CAST(run.block_bytes AS BIGINT)
        ELSE rates.capacity_blocks <= fills.blocks
    END AS filled,
    rates.dropped_requests
FROM rates
JOIN fills ON rates.pool IS NOT DISTINCT FROM fills.pool
CROSS JOIN run
ORDER BY rates.pool NULLS FIRST, rates.policy, rates.capacity_blocks, rates.reserved_blocks
