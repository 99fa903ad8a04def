-- tiers: what each tier of storage serves, fastest first, and how fast it must be read. Exclusive tiers hold
--     different blocks, so that capacities add up; with inclusive ones each also holds what faster ones hold
-- reads: requests, reuse_runs
-- parameters: $tiers (capacities of each pool, fastest first, with or without names, such as
--     hbm=640GiB, dram=2TiB), $mode (exclusive or inclusive, default exclusive), $window_seconds (length of
--     the windows over which reads are counted, default 60)
-- returns: pool VARCHAR (null: all together), tier BIGINT, tier_name VARCHAR, capacity_blocks BIGINT,
--     capacity_bytes BIGINT, hit_blocks BIGINT, hit_tokens BIGINT, block_hit_rate DOUBLE,
--     token_hit_rate DOUBLE, share_of_hits DOUBLE (of hit tokens), read_bytes BIGINT,
--     read_blocks_per_second_p50 DOUBLE, read_blocks_per_second_p99 DOUBLE (over all windows from the first
--     to the last measured request, idle ones included; null without timestamps),
--     read_bytes_per_second_p50 DOUBLE, read_bytes_per_second_p99 DOUBLE (bytes are null without bytes per
--     token)
-- example:
--     SELECT tier_name, hit_blocks, read_blocks_per_second_p99 FROM tiers('hbm=10, dram=160KiB')
--     tier_name  hit_blocks  read_blocks_per_second_p99
--           hbm          26                         0.1
--          dram          19                   0.0833333
WITH listed AS (
    SELECT unnest(items($tiers)) AS item, generate_subscripts(items($tiers), 1) AS tier
),

sized AS (
    SELECT
        tier,
        CASE WHEN contains(item, '=') THEN trim(split_part(item, '=', 1)) ELSE 'tier ' || tier END AS tier_name,
        capacity_blocks(trim(regexp_replace(item, '^[^=]*=', ''))) AS capacity
    FROM listed
),

reaching AS (
    SELECT
        *,
        CASE CAST($mode AS VARCHAR)
            WHEN 'exclusive' THEN sum(capacity) OVER (ORDER BY tier)
            WHEN 'inclusive' THEN max(capacity) OVER (ORDER BY tier)
            ELSE error('mode is ''' || $mode || ''', expected exclusive or inclusive')
        END AS to_depth
    FROM sized
),

ranges AS (
    SELECT
        tier,
        tier_name,
        capacity,
        coalesce(lag(to_depth) OVER (ORDER BY tier), 0) AS from_depth,
        within_bound(to_depth) AS to_depth
    FROM reaching
),

reads AS (
    SELECT
        pool,
        tier,
        window_start(timestamp, $window_seconds) AS window_start,
        sum(blocks) AS blocks,
        sum(blocks * tokens_per_block) AS tokens
    FROM (
        SELECT
            pool,
            timestamp,
            tier,
            tokens_per_block,
            hits(depth, depth_head_first, blocks, to_depth)
                - hits(depth, depth_head_first, blocks, from_depth) AS blocks
        FROM measured_runs, ranges
    )
    WHERE blocks > 0
    GROUP BY GROUPING SETS ((tier, 3), (pool, tier, 3))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
),

spans AS (
    SELECT
        microseconds($window_seconds) AS window_us,
        (max(epoch_us(window_start(timestamp, $window_seconds)))
            - min(epoch_us(window_start(timestamp, $window_seconds)))) // window_us + 1 AS windows
    FROM requests
    WHERE measured
),

served AS (
    SELECT
        pool,
        tier,
        sum(blocks) AS blocks,
        sum(tokens) AS tokens,
        list_sort(list(blocks) FILTER (WHERE window_start IS NOT NULL)) AS busy
    FROM reads
    GROUP BY pool, tier
),

rated AS (
    SELECT
        pool_totals.pool,
        ranges.*,
        coalesce(served.blocks, 0) AS hit_blocks,
        coalesce(served.tokens, 0) AS hit_tokens,
        pool_totals.blocks,
        input_tokens,
        rank_with_idle(busy, windows, 50) * 1000000 / window_us AS p50,
        rank_with_idle(busy, windows, 99) * 1000000 / window_us AS p99
    FROM pool_totals
    CROSS JOIN ranges
    CROSS JOIN spans
    LEFT JOIN served ON pool_totals.pool IS NOT DISTINCT FROM served.pool AND ranges.tier = served.tier
)

SELECT
    pool,
    tier,
    tier_name,
    capacity AS capacity_blocks,
    capacity * (SELECT block_bytes FROM run) AS capacity_bytes,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate,
    hit_tokens / nullif(sum(hit_tokens) OVER (PARTITION BY pool), 0) AS share_of_hits,
    CAST(hit_blocks * (SELECT block_bytes FROM run) AS BIGINT) AS read_bytes,
    p50 AS read_blocks_per_second_p50,
    p99 AS read_blocks_per_second_p99,
    p50 * (SELECT block_bytes FROM run) AS read_bytes_per_second_p50,
    p99 * (SELECT block_bytes FROM run) AS read_bytes_per_second_p99
FROM rated
ORDER BY pool NULLS FIRST, tier
