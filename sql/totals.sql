-- totals: what the measured requests asked for and what unlimited storage would have served
-- reads: requests
-- parameters: none
-- returns: pool VARCHAR (null: all together), requests BIGINT, blocks BIGINT, ceiling_blocks BIGINT,
--     input_tokens BIGINT, ceiling_tokens BIGINT, mean_input_tokens DOUBLE
SELECT
    pool,
    count(*) AS requests,
    CAST(coalesce(sum(blocks), 0) AS BIGINT) AS blocks,
    CAST(coalesce(sum(ceiling_blocks), 0) AS BIGINT) AS ceiling_blocks,
    CAST(coalesce(sum(input_length), 0) AS BIGINT) AS input_tokens,
    CAST(coalesce(sum(ceiling_tokens), 0) AS BIGINT) AS ceiling_tokens,
    avg(input_length) AS mean_input_tokens
FROM requests
WHERE measured
GROUP BY GROUPING SETS ((), (pool))
HAVING grouping(pool) = 1 OR pool IS NOT NULL
ORDER BY pool NULLS FIRST
