-- totals: what the measured requests asked for and what unlimited storage would have served
-- reads: requests
-- parameters: none
-- returns: pool VARCHAR (null: all together), requests BIGINT, blocks BIGINT, ceiling_blocks BIGINT,
--     input_tokens BIGINT, ceiling_tokens BIGINT, mean_input_tokens DOUBLE
SELECT * FROM pool_totals ORDER BY pool NULLS FIRST
