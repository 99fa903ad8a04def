-- hit_rate_curve: hit rates of the measured requests at many capacities, from the exact curve
-- reads: curve, requests
-- parameters: $capacities_blocks (list of capacities of each pool in blocks, default
--     [1000, 10000, 100000, 1000000])
-- returns: pool VARCHAR (null: all together), capacity_blocks BIGINT, hit_blocks BIGINT,
--     hit_tokens BIGINT, block_hit_rate DOUBLE, reuse_hit_rate DOUBLE, prefix_hit_rate DOUBLE,
--     token_hit_rate DOUBLE
WITH asked AS (
    SELECT
        pool,
        sum(blocks) AS blocks,
        sum(ceiling_blocks) AS ceiling_blocks,
        sum(input_length) AS input_tokens
    FROM requests
    WHERE measured
    GROUP BY GROUPING SETS ((), (pool))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
),

wanted AS (
    SELECT DISTINCT coalesce(pool, '') AS pool_key, pool, capacity
    FROM asked, (SELECT unnest(CAST($capacities_blocks AS BIGINT[])) AS capacity)
),

corners AS (
    SELECT *, pool IS NULL AS together, coalesce(pool, '') AS pool_key FROM curve
),

served AS (
    SELECT
        wanted.pool,
        wanted.capacity,
        hit_blocks + (capacity - capacity_blocks) * blocks_per_capacity_block AS hit_blocks,
        hit_tokens + (capacity - capacity_blocks) * tokens_per_capacity_block AS hit_tokens
    FROM (SELECT *, pool IS NULL AS together FROM wanted) AS wanted
    ASOF JOIN corners
        ON wanted.pool_key = corners.pool_key
        AND wanted.together = corners.together
        AND wanted.capacity >= corners.capacity_blocks
)

SELECT
    served.pool,
    served.capacity AS capacity_blocks,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate,
    hit_blocks / nullif(ceiling_blocks, 0) AS reuse_hit_rate,
    hit_blocks / nullif(blocks, 0) AS prefix_hit_rate,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate
FROM served
JOIN asked ON served.pool IS NOT DISTINCT FROM asked.pool
ORDER BY served.pool NULLS FIRST, served.capacity
