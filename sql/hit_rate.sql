-- hit_rate: hit rates of the measured requests at one capacity, straight from the reuse runs
-- reads: requests, reuse_runs
-- parameters: $capacity_blocks (capacity of each pool in blocks)
-- returns: capacity_blocks BIGINT, hit_blocks BIGINT, hit_tokens BIGINT, block_hit_rate DOUBLE,
--     reuse_hit_rate DOUBLE, prefix_hit_rate DOUBLE, token_hit_rate DOUBLE
WITH served AS (
    SELECT
        coalesce(sum(hits(depth, depth_head_first, blocks, CAST($capacity_blocks AS BIGINT))), 0) AS hit_blocks,
        coalesce(sum(tokens_per_block
            * hits(depth, depth_head_first, blocks, CAST($capacity_blocks AS BIGINT))), 0) AS hit_tokens
    FROM reuse_runs
    WHERE request_id >= (SELECT warm_up_requests FROM run)
),

asked AS (
    SELECT sum(blocks) AS blocks, sum(ceiling_blocks) AS ceiling_blocks, sum(input_length) AS input_tokens
    FROM requests
    WHERE measured
)

SELECT
    CAST($capacity_blocks AS BIGINT) AS capacity_blocks,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate,
    hit_blocks / nullif(ceiling_blocks, 0) AS reuse_hit_rate,
    hit_blocks / nullif(blocks, 0) AS prefix_hit_rate,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate
FROM served, asked
