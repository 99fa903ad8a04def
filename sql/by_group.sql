-- by_group: what the requests of each group asked for, and what the cache that they share with others
--     served them. Hits are shares of the pool's hits: a group that was never a pool of its own would get
--     something else alone (replay with --pool for that)
-- reads: requests, reuse_runs
-- parameters: $column_name (a column of requests, such as model, session_id, pool or one that was kept,
--     default model), $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB, p99 or
--     unlimited, default unlimited)
-- returns: group_value VARCHAR, is_own_pool BOOLEAN (true: the group is a pool of its own), requests BIGINT,
--     blocks BIGINT, input_tokens BIGINT, hit_blocks_in_pool BIGINT, hit_tokens_in_pool BIGINT,
--     share_of_all_hits DOUBLE (of hit tokens), ceiling_block_hit_rate_in_pool DOUBLE,
--     block_hit_rate_in_pool DOUBLE, token_hit_rate_in_pool DOUBLE, required_p50_blocks_in_pool BIGINT,
--     required_p99_blocks_in_pool BIGINT
-- example:
--     SELECT group_value, requests, hit_blocks_in_pool, pct(share_of_all_hits) AS percent FROM by_group
--     group_value  requests  hit_blocks_in_pool  percent
--           small         7                  25    51.02
--           large         5                  24    48.98
WITH members AS (
    SELECT pool, CAST(struct_extract(requests, $column_name) AS VARCHAR) AS group_value
    FROM requests
    GROUP BY ALL
),

owners AS (
    SELECT group_value, bool_and(only_pool AND only_group) AS is_own_pool
    FROM (
        SELECT
            group_value,
            count(*) OVER (PARTITION BY group_value) = 1 AS only_pool,
            count(*) OVER (PARTITION BY pool) = 1 AS only_group
        FROM members
    )
    GROUP BY group_value
),

grouped AS (
    SELECT
        CAST(struct_extract(served, $column_name) AS VARCHAR) AS group_value,
        count(*) AS requests,
        sum(blocks) AS blocks,
        sum(input_length) AS input_tokens,
        sum(ceiling_blocks) AS ceiling_blocks,
        sum(hit_blocks) AS hit_blocks,
        sum(hit_tokens) AS hit_tokens,
        list(required_blocks) AS required
    FROM request_hits($capacity_blocks) AS served
    GROUP BY ALL
)

SELECT
    grouped.group_value,
    is_own_pool,
    requests,
    CAST(blocks AS BIGINT) AS blocks,
    CAST(input_tokens AS BIGINT) AS input_tokens,
    CAST(hit_blocks AS BIGINT) AS hit_blocks_in_pool,
    CAST(hit_tokens AS BIGINT) AS hit_tokens_in_pool,
    hit_tokens / nullif(sum(hit_tokens) OVER (), 0) AS share_of_all_hits,
    ceiling_blocks / nullif(blocks, 0) AS ceiling_block_hit_rate_in_pool,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate_in_pool,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate_in_pool,
    nearest_rank(required, 50) AS required_p50_blocks_in_pool,
    nearest_rank(required, 99) AS required_p99_blocks_in_pool
FROM grouped
JOIN owners ON grouped.group_value IS NOT DISTINCT FROM owners.group_value
ORDER BY input_tokens DESC, grouped.group_value
