-- hit_rate: hit rates of the measured requests at one capacity, straight from the reuse runs
-- reads: requests, reuse_runs
-- parameters: $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB, p99 or unlimited)
-- returns: capacity_blocks BIGINT, hit_blocks BIGINT, hit_tokens BIGINT, block_hit_rate DOUBLE,
--     reuse_hit_rate DOUBLE, prefix_hit_rate DOUBLE, token_hit_rate DOUBLE
-- example:
--     SELECT capacity_blocks, hit_blocks, hit_tokens, pct(token_hit_rate) AS percent FROM hit_rate(20)
--     capacity_blocks  hit_blocks  hit_tokens  percent
--                  20          45         720    59.55
WITH served AS (
    SELECT
        coalesce(sum(hit_blocks), 0) AS hit_blocks,
        coalesce(sum(hit_tokens), 0) AS hit_tokens,
        sum(blocks) AS blocks,
        sum(ceiling_blocks) AS ceiling_blocks,
        sum(input_length) AS input_tokens
    FROM request_hits($capacity_blocks)
)

SELECT
    capacity_blocks($capacity_blocks) AS capacity_blocks,
    CAST(hit_blocks AS BIGINT) AS hit_blocks,
    CAST(hit_tokens AS BIGINT) AS hit_tokens,
    hit_blocks / nullif(blocks, 0) AS block_hit_rate,
    hit_blocks / nullif(ceiling_blocks, 0) AS reuse_hit_rate,
    hit_blocks / nullif(blocks, 0) AS prefix_hit_rate,
    hit_tokens / nullif(input_tokens, 0) AS token_hit_rate
FROM served
