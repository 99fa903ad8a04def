-- by_hour: traffic, ceiling, hits at a capacity, required capacity and working set, window by window
-- reads: requests, reuse_runs
-- parameters: $window_seconds (length of a window, default 3600), $capacity_blocks (capacity of each pool:
--     blocks, or text such as 2TiB, p99 or unlimited, default p99)
-- returns: pool VARCHAR (null: all together), window_start TIMESTAMP (null: requests without a timestamp),
--     requests BIGINT, input_tokens BIGINT, blocks BIGINT, ceiling_block_hit_rate DOUBLE,
--     capacity_blocks BIGINT, hit_blocks BIGINT, hit_tokens BIGINT, block_hit_rate DOUBLE,
--     token_hit_rate DOUBLE, required_p50_blocks BIGINT, required_p99_blocks BIGINT,
--     working_set_blocks BIGINT (distinct blocks that the window's requests touched; null for all windows where
--     requests of one come between those of another, or have no timestamp: replay with --sort-by-time; null
--     under engine rules and --max-capacity)
-- example:
--     SELECT window_start, requests, hit_blocks, required_p99_blocks, working_set_blocks FROM by_hour
--            window_start  requests  hit_blocks  required_p99_blocks  working_set_blocks
--     2023-11-14 22:00:00         6          17                   13                  18
--     2023-11-14 23:00:00         3          16                   18                  19
--     2023-11-15 00:00:00         3          16                   24                  16
WITH touched_again AS (
    SELECT request_id, sum(blocks) AS blocks
    FROM measured_runs
    WHERE source_request_id >= (SELECT warm_up_requests FROM run)
        AND window_start(timestamp, $window_seconds)
            = window_start(timestamp - to_microseconds(age_us), $window_seconds)
    GROUP BY request_id
),

contiguous AS (
    SELECT bool_and(is_next) AS all_windows
    FROM (
        SELECT coalesce(window_start >= lag(window_start, 1, window_start) OVER (ORDER BY request_id), false)
            AS is_next
        FROM (
            SELECT request_id, window_start(timestamp, $window_seconds) AS window_start
            FROM requests
            WHERE measured
        )
    )
),

windows AS (
    SELECT
        pool,
        window_start(timestamp, $window_seconds) AS window_start,
        count(*) AS requests,
        sum(input_length) AS input_tokens,
        sum(served.blocks) AS blocks,
        sum(ceiling_blocks) AS ceiling_blocks,
        sum(hit_blocks) AS hit_blocks,
        sum(hit_tokens) AS hit_tokens,
        list(required_blocks) AS required,
        sum(served.blocks - coalesce(touched_again.blocks, 0)) AS distinct_blocks
    FROM request_hits($capacity_blocks) AS served
    LEFT JOIN touched_again ON served.request_id = touched_again.request_id
    GROUP BY GROUPING SETS ((2), (2, pool))
    HAVING grouping(pool) = 1 OR pool IS NOT NULL
)

SELECT
    pool,
    window_start,
    requests,
    CAST(input_tokens AS BIGINT) AS input_tokens,
    CAST(blocks AS BIGINT) AS blocks,
    ceiling_blocks / nullif(blocks, 0) AS ceiling_block_hit_rate,
    capacity_blocks($capacity_blocks) AS capacity_blocks,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate,
    nearest_rank(required, 50) AS required_p50_blocks,
    nearest_rank(required, 99) AS required_p99_blocks,
    CASE WHEN all_windows AND is_plain() AND bound_blocks() IS NULL THEN CAST(distinct_blocks AS BIGINT) END
        AS working_set_blocks
FROM windows, contiguous
ORDER BY pool NULLS FIRST, window_start
