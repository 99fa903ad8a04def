-- capacity_percentiles: nearest-rank percentiles of the capacity that each measured request required
-- reads: requests, reuse_runs
-- parameters: $target_percent (share of its own ceiling that a request must reach; run for the
--     run's own, default run), $percents (list of percentiles, default [50, 90, 95, 99, 99.9])
-- returns: pool VARCHAR (null: all together), sample VARCHAR (samples: all requests; reusing: those
--     with something to reuse), requests BIGINT, mean_blocks DOUBLE, percent DOUBLE,
--     required_blocks BIGINT, required_bytes BIGINT (null without bytes per token)
-- example:
--     SELECT sample, percent, required_blocks FROM capacity_percentiles(percents := '50, 99')
--      sample  percent  required_blocks
--     samples       50               11
--     samples       99               24
--     reusing       50               13
--     reusing       99               24
WITH target AS (
    SELECT CASE WHEN CAST($target_percent AS VARCHAR) = 'run' THEN (SELECT run.target_percent FROM run)
        ELSE CAST($target_percent AS VARCHAR) END AS percent
),

needed AS (
    SELECT
        request_id,
        pool,
        ceiling_blocks,
        ceil_share(ceiling_blocks, (SELECT percent FROM target)) AS blocks
    FROM requests
    WHERE measured
),

required AS (
    SELECT
        needed.pool,
        needed.ceiling_blocks,
        coalesce(CASE WHEN (SELECT tail_first FROM run)
            THEN reuse_runs.depth + needed.blocks - reuse_runs.first_block
            ELSE reuse_runs.depth_head_first + 1 END, 0) AS blocks
    FROM needed
    LEFT JOIN reuse_runs
        ON needed.request_id = reuse_runs.request_id
        AND needed.blocks - 1 BETWEEN reuse_runs.first_block AND reuse_runs.first_block + reuse_runs.blocks - 1
),

sampled AS (
    SELECT 'samples' AS sample, pool, blocks FROM required
    UNION ALL
    SELECT 'reusing', pool, blocks FROM required WHERE ceiling_blocks > 0
),

grouped AS (
    SELECT
        sample,
        pool,
        count(*) AS requests,
        avg(blocks) AS mean_blocks,
        list(blocks ORDER BY blocks) AS sorted_blocks
    FROM sampled
    GROUP BY GROUPING SETS ((sample), (sample, pool))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
)

SELECT
    pool,
    sample,
    requests,
    mean_blocks,
    percent,
    sorted_blocks[greatest(1, ceil_share(requests, percent))] AS required_blocks,
    sorted_blocks[greatest(1, ceil_share(requests, percent))] * (SELECT block_bytes FROM run) AS required_bytes
FROM grouped, (SELECT CAST(unnest(items($percents)) AS DOUBLE) AS percent)
ORDER BY pool NULLS FIRST, sample DESC, percent
