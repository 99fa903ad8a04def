-- ttl_surface: hit rates of LRU with a time to live, over TTL and capacity. A block hits iff its depth is
--     below the capacity and it was used at most the TTL ago; every use starts its time anew. A TTL needs
--     timestamps
-- reads: requests, reuse_runs
-- parameters: $ttls_seconds (list of times to live, none for no limit, default [60, 300, 900, 1800, 3600,
--     7200, 21600, 86400, none]), $capacities_blocks (list of capacities of each pool: blocks, or text such
--     as 2TiB, p99 or unlimited, default [p50, p90, p95, p99, unlimited])
-- returns: pool VARCHAR (null: all together), ttl_seconds DOUBLE (null: no limit), capacity_blocks BIGINT,
--     capacity_bytes BIGINT (null without bytes per token), hit_blocks BIGINT, hit_tokens BIGINT,
--     block_hit_rate DOUBLE, token_hit_rate DOUBLE, unknown_age_blocks BIGINT (blocks within the capacity
--     that miss since a request has no timestamp)
-- example:
--     SELECT ttl_seconds, capacity_blocks, hit_blocks FROM ttl_surface('60, 3600, none', '10, 20')
--     ttl_seconds  capacity_blocks  hit_blocks
--              60               10           9
--              60               20           9
--            3600               10          26
--            3600               20          36
--                               10          26
--                               20          45
WITH ttls AS (
    SELECT DISTINCT
        CASE WHEN item = 'none' THEN NULL WHEN has_timestamps() THEN microseconds(item) END AS ttl_us
    FROM (SELECT unnest(items($ttls_seconds)) AS item)
),

capacities AS (
    SELECT DISTINCT capacity_blocks(item) AS capacity
    FROM (SELECT unnest(items($capacities_blocks)) AS item)
),

within AS (
    SELECT
        pool,
        ttl_us,
        capacity,
        age_us IS NULL AND ttl_us IS NOT NULL AS is_unknown,
        ttl_us IS NULL OR coalesce(age_us <= ttl_us, false) AS is_live,
        tokens_per_block,
        hits(depth, depth_head_first, blocks, capacity) AS blocks
    FROM measured_runs, ttls, capacities
),

served AS (
    SELECT
        pool,
        ttl_us,
        capacity,
        sum(blocks) FILTER (WHERE is_live) AS hit_blocks,
        sum(blocks * tokens_per_block) FILTER (WHERE is_live) AS hit_tokens,
        sum(blocks) FILTER (WHERE is_unknown) AS unknown_blocks
    FROM within
    GROUP BY GROUPING SETS ((ttl_us, capacity), (pool, ttl_us, capacity))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
)

SELECT
    pool_totals.pool,
    ttls.ttl_us / 1000000 AS ttl_seconds,
    capacities.capacity AS capacity_blocks,
    capacities.capacity * (SELECT block_bytes FROM run) AS capacity_bytes,
    CAST(coalesce(hit_blocks, 0) AS BIGINT) AS hit_blocks,
    CAST(coalesce(hit_tokens, 0) AS BIGINT) AS hit_tokens,
    coalesce(hit_blocks, 0) / nullif(pool_totals.blocks, 0) AS block_hit_rate,
    coalesce(hit_tokens, 0) / nullif(input_tokens, 0) AS token_hit_rate,
    CAST(coalesce(unknown_blocks, 0) AS BIGINT) AS unknown_age_blocks
FROM pool_totals
CROSS JOIN ttls
CROSS JOIN capacities
LEFT JOIN served
    ON pool_totals.pool IS NOT DISTINCT FROM served.pool
    AND ttls.ttl_us IS NOT DISTINCT FROM served.ttl_us
    AND capacities.capacity = served.capacity
ORDER BY pool_totals.pool NULLS FIRST, ttls.ttl_us NULLS LAST, capacities.capacity
