-- length_buckets: traffic, hits and required capacity by prompt length. Requests of all lengths share the
--     cache of their pool: hits are shares of the pool's hits, not what a bucket would get alone
-- reads: requests, reuse_runs
-- parameters: $bounds_tokens (where one bucket ends and the next begins, default [1000, 2000, 4000, 8000,
--     16000, 32000, 64000, 128000, 256000, 512000, 1000000]), $capacity_blocks (capacity of each pool:
--     blocks, or text such as 2TiB, p99 or unlimited, default p99)
-- returns: from_tokens BIGINT, below_tokens BIGINT (null in the last bucket), requests BIGINT,
--     input_tokens BIGINT, blocks BIGINT, hit_blocks_in_pool BIGINT, hit_tokens_in_pool BIGINT,
--     share_of_all_hits DOUBLE (of hit tokens), ceiling_block_hit_rate_in_pool DOUBLE,
--     block_hit_rate_in_pool DOUBLE, token_hit_rate_in_pool DOUBLE, required_p50_blocks_in_pool BIGINT,
--     required_p99_blocks_in_pool BIGINT
-- example:
--     SELECT from_tokens, below_tokens, requests, hit_blocks_in_pool FROM length_buckets('64, 100')
--     from_tokens  below_tokens  requests  hit_blocks_in_pool
--               0            64         1                   0
--              64           100         6                  17
--             100                       5                  32
WITH starts AS (
    SELECT DISTINCT CAST(unnest(list_append(items($bounds_tokens), '0')) AS BIGINT) AS from_tokens
),

buckets AS (
    SELECT from_tokens, lead(from_tokens) OVER (ORDER BY from_tokens) AS below_tokens FROM starts
)

SELECT
    from_tokens,
    below_tokens,
    count(*) AS requests,
    CAST(sum(input_length) AS BIGINT) AS input_tokens,
    CAST(sum(blocks) AS BIGINT) AS blocks,
    CAST(sum(hit_blocks) AS BIGINT) AS hit_blocks_in_pool,
    CAST(sum(hit_tokens) AS BIGINT) AS hit_tokens_in_pool,
    sum(hit_tokens) / nullif(sum(sum(hit_tokens)) OVER (), 0) AS share_of_all_hits,
    sum(ceiling_blocks) / nullif(sum(blocks), 0) AS ceiling_block_hit_rate_in_pool,
    sum(hit_blocks) / nullif(sum(blocks), 0) AS block_hit_rate_in_pool,
    sum(hit_tokens) / nullif(sum(input_length), 0) AS token_hit_rate_in_pool,
    nearest_rank(list(required_blocks), 50) AS required_p50_blocks_in_pool,
    nearest_rank(list(required_blocks), 99) AS required_p99_blocks_in_pool
FROM request_hits($capacity_blocks)
JOIN buckets ON input_length >= from_tokens AND (below_tokens IS NULL OR input_length < below_tokens)
GROUP BY from_tokens, below_tokens
ORDER BY from_tokens
