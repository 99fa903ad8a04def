-- hit_rate_curve: hit rates of the measured requests at many capacities, from the exact curve
-- reads: curve, requests
-- parameters: $capacities_blocks (list of capacities of each pool: blocks, or text such as 2TiB, p99 or
--     unlimited, default [p50, p90, p95, p99, unlimited])
-- returns: pool VARCHAR (null: all together), capacity_blocks BIGINT, hit_blocks BIGINT,
--     hit_tokens BIGINT, block_hit_rate DOUBLE, reuse_hit_rate DOUBLE, prefix_hit_rate DOUBLE,
--     token_hit_rate DOUBLE
-- example:
--     SELECT capacity_blocks, hit_blocks, pct(token_hit_rate) AS percent FROM hit_rate_curve('5, 20, 320KiB')
--     capacity_blocks  hit_blocks  percent
--                   5          14    18.53
--                  20          45    59.55
WITH capacities AS (
    SELECT DISTINCT capacity_blocks(item) AS capacity
    FROM (SELECT unnest(items($capacities_blocks)) AS item)
),

wanted AS (
    SELECT *, pool IS NULL AS together, coalesce(pool, '') AS pool_key FROM pool_totals, capacities
),

corners AS (
    SELECT *, pool IS NULL AS together, coalesce(pool, '') AS pool_key FROM curve
),

served AS (
    SELECT
        wanted.*,
        corners.hit_blocks + (capacity - corners.capacity_blocks) * blocks_per_capacity_block AS hit_blocks,
        corners.hit_tokens + (capacity - corners.capacity_blocks) * tokens_per_capacity_block AS hit_tokens
    FROM wanted
    ASOF JOIN corners
        ON wanted.pool_key = corners.pool_key
        AND wanted.together = corners.together
        AND wanted.capacity >= corners.capacity_blocks
)

SELECT
    pool,
    capacity AS capacity_blocks,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate,
    hit_blocks / nullif(ceiling_blocks, 0) AS reuse_hit_rate,
    hit_blocks / nullif(blocks, 0) AS prefix_hit_rate,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate
FROM served
ORDER BY pool NULLS FIRST, capacity
